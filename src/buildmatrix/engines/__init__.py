"""Engines that build, open and run images, behind one interface (`engines.model`).

`docker` uses buildx and a daemon; `oci` assembles images itself, without daemon or root.
`dockerfile` writes Dockerfiles and the bake file from the targets' locks. A specification's targets
enter; images, their files, exit statuses and logs leave.
"""
