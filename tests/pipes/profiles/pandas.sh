# pandas exports a table and imports it: entrepot pipe learn rows.csv -- sh -e pandas.sh
python - <<'PROGRAM'
import pandas as pd

table = pd.DataFrame({"i": range(1000), "x": [i * 0.5 for i in range(1000)], "s": [f'a,"{i}' for i in range(1000)]})
table.to_csv("rows.csv", index=False)
pd.testing.assert_frame_equal(pd.read_csv("rows.csv"), table)
PROGRAM
