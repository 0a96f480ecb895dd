"""Services for programs on one host: what many processes do to records, with pages that lie in the store."""
