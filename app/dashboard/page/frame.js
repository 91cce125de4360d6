// Turns the feed's records into what the parts show. The only place that knows the feed's field names.

/** A running or waiting request. */
export function requestOf(one) {
  const computed = Math.max(0, Math.min(one.prompt_tokens - one.cached_tokens, one.computed_tokens ?? 0));
  return {
    id: one.id,
    phase: one.state,
    prompt: one.prompt_tokens,
    cached: one.cached_tokens,
    computed,
    output: one.output_tokens,
    planned: Math.max(one.planned_tokens ?? one.max_tokens ?? one.output_tokens, one.output_tokens, 1),
    preemptions: one.preemptions,
    waitedMs: one.e2e_ms,
  };
}
