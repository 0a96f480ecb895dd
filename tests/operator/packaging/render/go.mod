module entrepot.dev/render

go 1.24
