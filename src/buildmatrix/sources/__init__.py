"""SOURCE arguments: one parser, one interface, one class per kind.

In: a text of the command line (`dir:...`, `lock:...`, `registry:...`, or a name without a prefix).
Out: facts and files of installed things, or a lock for each target of declared ones.
`parse` recognizes kinds, `model` is their interface, `resolved` and `wheels_on_index` resolve and
read declared sources, and `state_folder` has what builds left on this machine.
"""
