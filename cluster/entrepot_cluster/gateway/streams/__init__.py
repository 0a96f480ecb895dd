"""Streams of the cluster: one stream on all hosts, which lives in one of their stores, its home.

A writer or reader on another host is a remote end. Its process talks to its own gateway over two relays, which are
ordinary streams (``entrepot._streams.relays``); that gateway asks the home's, which has an ordinary writer or reader of
the stream in its place::

    process ══relays══ RemoteWriter, RemoteReader ──requests──▶ HomeWriter, HomeReader ══ the stream
                               └────────HomeLink: signs of life────────▶ HomeEnds
"""
