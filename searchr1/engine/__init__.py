"""An embedded engine that speaks PyTRIO's wire protocol, with torch and peft behind it.

Start it with `python -m searchr1.engine --help`, or build the ASGI application yourself with
`searchr1.engine.app.create_app`. It imports nothing from the rest of `searchr1`, so any program
written for the PyTRIO SDK can be pointed at it. It listens on loopback only.

What the real service leaves open, and what this engine does:

- **Greedy**: temperature 0 takes the most likely token; its logprob is that of temperature 1.
- **Logprobs** of sampled tokens are those of the distribution that was sampled from: after
  temperature, top-k and top-p. Prompt logprobs and training logprobs are of temperature 1. All
  of them are over the ids below `len(tokenizer)`; padded ids are never sampled nor counted.
- **Seeds**: sample i of a request with seed s depends on (s, i) and the prompt alone, not on
  what else is in the batch (up to float rounding of the logits).
- **Stop**: the model's own end-of-sequence ids always end a sequence. The token that ended it is
  the last of `tokens`, with its logprob; `text` ends before it. `stop_reason` is "stop" or
  "length".
- **Limits**: a prompt longer than `max_seq_len` (the model's positions) is refused; a sequence that
  reaches it ends with "length". Saving under a taken name without `overwrite` fails the event
  (`checkpoint_exists`).
- **Memory**: runs end with their session; a training run ends after 15 minutes without a
  heartbeat, a sampling run after a day without use. Checkpoints stay until they are deleted or
  their TTL is over.
- **Losses**: `searchr1.engine.losses`; the gradient is the mean over the samples of the whole
  call, also where the SDK split it into several events.
"""
