"""Totals of orders by customer: totals.py ORDERS TOTALS, two files."""

import sys

import pandas as pd

orders = pd.read_csv(sys.argv[1])
totals = orders.groupby("customer", as_index=False)["amount"].sum()
totals.to_csv(sys.argv[2], index=False)
