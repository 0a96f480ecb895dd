"""Moves objects between the stores of a cluster: from shared memory to a socket to shared memory.

``server.GatewayServer`` sends what peers ask for, ``peer.PeerConnections`` are the connections to one peer, and
``fetching.fetch`` receives objects over them. ``endpoints`` has the interfaces to whatever holds the objects,
``store_endpoints`` those of a store. The wire format is described in ``docs/formats/gateway-protocol.md``.
"""
