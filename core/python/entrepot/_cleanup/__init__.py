"""Removing what nobody needs any more: sessions of ended runs, and what dead stores left on this machine."""
