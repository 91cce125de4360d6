// Turns the feed's records into what the parts show. The only place that knows the feed's field names.

/** A running or waiting request. */
export function requestOf(one) {
  return {
    id: one.id,
    phase: one.state,
    prompt: one.prompt_tokens,
    cached: one.cached_tokens,
    computed: Math.max(0, Math.min(one.prompt_tokens - one.cached_tokens, one.computed_tokens ?? 0)),
    output: one.output_tokens,
    planned: Math.max(one.planned_tokens ?? one.max_tokens ?? 1, one.output_tokens, 1),
    preemptions: one.preemptions,
    waitedMs: one.e2e_ms,
  };
}

export function frameOf(s) {
  const sum = (key) => s.ranks.reduce((total, rank) => total + (rank.blocks[key] ?? 0), 0);
  const total = sum("total");
  const held = total - sum("cached") - sum("free");
  const curve = s.curve.map((p) => ({
    agoS: p.ago_s, ttft: [p.ttft_p50_ms, p.ttft_p99_ms], itl: [p.itl_p50_ms, p.itl_p99_ms], rate: p.tokens_per_s, preemptions: p.preemptions,
  }));
  const lastOf = (key) => [0, 1].map((i) => curve.filter((p) => p[key][i] !== null).at(-1)?.[key][i] ?? null);
  return {
    model: s.model ?? "mocker", state: s.state, workerType: s.worker_type ?? "aggregated", speedup: s.speedup_ratio ?? 1,
    blockSize: s.block_size ?? 16, uptimeMs: s.now_ms, nowMs: s.now_ms,
    ranks: s.ranks,
    running: s.running.map(requestOf), waiting: s.waiting.map(requestOf), runningTotal: s.running_total, waitingTotal: s.waiting_total, maxRunning: s.max_num_seqs ?? 256,
    oldestWaitMs: s.waiting.length ? Math.max(...s.waiting.map((w) => w.e2e_ms)) : null,
    heldBlocks: held, heldShare: total ? held / total : 0,
    curve, rate: curve.at(-1)?.rate ?? 0, requestRate: 0, peakRate: Math.max(0, ...curve.map((p) => p.rate)),
    ttft: lastOf("ttft"), itl: lastOf("itl"),
    preemptions: s.ranks.reduce((n, r) => n + r.metrics.vllm_preemptions_total, 0), preemptionsLately: curve.reduce((n, p) => n + p.preemptions, 0),
    hitShare: null,
    handoffs: s.handoffs, handoffCounts: {}, recent: s.recent, endedTotal: s.ended_total,
  };
}
