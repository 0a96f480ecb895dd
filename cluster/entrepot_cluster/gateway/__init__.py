"""The gateway beside a store: makes it part of a cluster. To the store it is a client like others."""
