"""Images as bytes: layouts, archives and layers, read and written.

`oci` has the documents of the OCI specification, `layer_facts` the facts of one layer, `merging`
their merge into those of an image, and `store` the cache on disk and the one that machines share.
Archives, layouts and streams of layers enter; inventories leave, cached by the digest of their
bytes.
"""
