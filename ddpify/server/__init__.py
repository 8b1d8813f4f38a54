"""``ddpify server``: what ``check`` finds, told to editors over the language server protocol.

``reading`` keeps projects and their buffers and knows nothing of the protocol; ``told`` and
``actions`` turn what was found into its types; ``session`` decides when to read; ``serve``
listens.
"""
