"""A pipeline of pods scheduled near their data, on a real control plane, with the nodes' stores on this machine."""
