// Turns a frame of the feed into what the parts show. The only place that knows the feed's field names.

/** Points that "now" is averaged over: a single second is restless. */
const NOW_S = 3;

/** A running or waiting request; lengths in tokens. */
function requestOf(one) {
  const computed = Math.min(one.prompt_tokens - one.cached_tokens, one.computed_tokens ?? 0);
  return {
    id: one.id,
    phase: one.state,
    prompt: one.prompt_tokens,
    cached: one.cached_tokens,
    computed: Math.max(0, computed),
    output: one.output_tokens,
    planned: Math.max(one.planned_tokens ?? one.max_tokens ?? 1, one.output_tokens, 1),
    preemptions: one.preemptions,
    waitedMs: one.e2e_ms,
  };
}

export function frameOf(sent) {
  const blocks = (key) => sent.ranks.reduce((sum, rank) => sum + (rank.blocks[key] ?? 0), 0);
  const total = blocks("total");
  const held = blocks("active") + blocks("reserved") + blocks("in_copy");
  const curve = sent.curve.map((point) => ({
    agoS: point.ago_s,
    ttft: [point.ttft_p50_ms, point.ttft_p99_ms],
    itl: [point.itl_p50_ms, point.itl_p99_ms],
    rate: sent.worker_type === "prefill" ? point.prefill_tokens_per_s : point.tokens_per_s,
    requests: point.requests_per_s,
    preemptions: point.preemptions,
  }));
  const now = curve.slice(-NOW_S);
  const mean = (key) => now.reduce((sum, point) => sum + point[key], 0) / Math.max(1, now.length);
  const running = sent.running.map(requestOf);
  const waiting = sent.waiting.map(requestOf);
  const ranks = sent.ranks.length;
  return {
    model: sent.model,
    state: sent.state,
    workerType: sent.worker_type,
    speedup: sent.speedup_ratio,
    blockSize: sent.block_size,
    uptimeMs: sent.now_ms,
    nowMs: sent.now_ms,
    latenessMs: sent.lateness_p99_ms,
    saturated: sent.saturated,
    ranks: sent.ranks,
    running,
    waiting,
    runningTotal: Math.max(sent.running_total, running.length),
    waitingTotal: Math.max(sent.waiting_total, waiting.length),
    maxRunning: sent.max_num_seqs === null ? null : sent.max_num_seqs * ranks,
    oldestWaitMs: waiting.length ? Math.max(...waiting.map((one) => one.waitedMs)) : null,
    heldBlocks: held,
    heldShare: total ? held / total : 0,
    curve,
    rate: mean("rate"),
    requestRate: mean("requests"),
    peakRate: Math.max(0, ...curve.map((point) => point.rate)),
    ttft: latestOf(curve, "ttft"),
    itl: latestOf(curve, "itl"),
    preemptions: sent.ranks.reduce((sum, rank) => sum + rank.metrics.vllm_preemptions_total, 0),
    preemptionsLately: curve.reduce((sum, point) => sum + point.preemptions, 0),
    hitShare: sent.prefix_hit_share,
    handoffs: sent.handoffs,
    handoffCounts: sent.handoff_counts,
    recent: sent.recent,
    endedTotal: sent.ended_total,
  };
}

/** p50 and p99 of the latest second that had any. */
function latestOf(curve, key) {
  return curve.findLast((point) => point[key][0] !== null)?.[key] ?? [null, null];
}
