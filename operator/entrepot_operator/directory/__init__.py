"""The directory of a cluster of stores in custom resources of Kubernetes; see docs/cluster.md.

opening.py       the URL kubernetes://NAMESPACE/NAME
backend.py       what a directory needs of a server, over the modules below
subscription.py  changes of the instances
directory_copy.py a copy of the resources that is as new as it has to be
view.py          the copy's contents, with an index
shard_changes.py which shards a change affects
shards.py        DirectoryShard: resources and their contents
leases.py        the leases of instances
requests.py      requests from several threads, within a timeout
server_clock.py  the API server's clock
"""
