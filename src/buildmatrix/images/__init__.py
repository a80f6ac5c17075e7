"""Images as bytes: layouts, archives and layers, read and written.

`documents`, `layers` and `layout` are those of the OCI image specification 1.1. `layer_facts` has
the facts of one layer, `merging` their merge into those of an image, and `store` the cache on disk
and the one that machines share.
Archives, layouts and streams of layers enter; inventories leave, cached by the digest of their
bytes.
"""
