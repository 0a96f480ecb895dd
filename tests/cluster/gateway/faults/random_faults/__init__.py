"""Random faults in a cluster of three hosts, and a model of what must hold all the same.

run ── hosts        stores, gateways, relays, a directory's server
 ├──── workers      put, get, delete, move and publish
 ├──── faults       kill, stop, cut, damage, empty
 ├──── calm         heals everything now and then, and checks all that must exist
 ├──── model        what must be read, what may be lost, what must never be returned
 └──── report       what happened, and what did not hold
"""
