"""Facts → findings: rules, verdicts, waivers, policy, advisories, node classes.

In: an inventory or the wheels of a lock, the catalogue, and a target's policy and node classes.
Out: findings with evidence, chains and fixes; a verdict per distribution; a state per gate.
Rules are grouped by the evidence that they read. `registry` lists them: one rule has one code, one
function and one page (`docs/rules/CODE.md`). `engine` runs them over one target, `judging` over all
targets of a run.
"""
