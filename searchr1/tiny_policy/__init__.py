"""The tiny policy: a language model of 2 MB that can search the built-in world but has poor habits.

Qwen3's architecture with a million parameters. It copies names and reads documents well; it mostly
answers in a wrong form and stops after the first hop. Reinforcement learning repairs that in 20
steps on two cores.

On the 70 held-out questions of the demo world, before and after 20 steps of 8 questions x 8
trajectories at temperature 1 (LoRA rank 16, alpha 32, Adam 3e-3 with betas 0.9 and 0.95), exact
match and in brackets one-hop / two-hop; temperature 1 with 4 samples a question:

    ============  =================  ======  =================  ======
    policy        greedy             format  temperature 1      format
    ============  =================  ======  =================  ======
    packaged      .457 (.83 / .09)   .657    .339 (.59 / .09)   .586
    RL, seed 0    .929 (.97 / .89)   1.00    .796 (.86 / .74)   1.00
    RL, seed 1    .914 (.97 / .86)   1.00    .818 (.89 / .75)   .993
    RL, seed 2    .843 (.94 / .74)   1.00    .750 (.86 / .64)   .993
    ============  =================  ======  =================  ======

Searches on two-hop questions, greedily: 1.66 before, 2.00 after, with every seed.

The packaged weights come from a forerunner of `searchr1.tiny_policy.make`: the same recipe with
another vocabulary (1310 tokens; the script makes 1060) and other draws. The forerunner kept the
names of people and places in held-out worlds out of training, as the script does; it did not keep
out book titles, whose facts differ from world to world. A full run of the script (23 minutes on two
cores) makes one of the same kind, on the same questions and settings:

    ============  =================  ======  =================  ======
    policy        greedy             format  temperature 1      format
    ============  =================  ======  =================  ======
    made          .371 (.49 / .26)   .486    .289 (.40 / .18)   .475
    RL, seed 0    .800 (.89 / .71)   1.00    .764 (.86 / .66)   1.00
    RL, seed 1    .800 (.86 / .74)   1.00    .807 (.88 / .74)   1.00
    RL, seed 2    .829 (.83 / .83)   1.00    .796 (.84 / .75)   .996
    ============  =================  ======  =================  ======

Searches on two-hop questions, greedily: 1.80 before, 2.00 after, with every seed. An exact match
near .8 on 70 questions is known to about .1.
"""

from pathlib import Path

MODEL_NAME = "tiny-search-world"
"""Its name as a base model."""
WEIGHTS = Path(__file__).parent / "weights"
"""The folder with weights, tokenizer and chat template, as transformers loads it."""
SYSTEM_PROMPT = (
    "Answer the question. Use the search tool to look up facts. "
    "End with one line: Answer: <short answer>"
)
"""The only system prompt that it knows."""
