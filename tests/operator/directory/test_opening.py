"""URLs of directories in Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest
from entrepot.errors import InvalidArgument
from entrepot_cluster.directory import open_directory


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("kubernetes://stores", "cluster's name"),
        ("kubernetes://stores/", "cluster's name"),
        ("kubernetes://stores/Prod", "lower-case"),
        ("kubernetes://stores/a.b", "lower-case"),
        ("kubernetes://stores/" + "x" * 41, "1 to 40"),
        ("kubernetes://stores/a/b", "nothing but the cluster's name"),
        ("kubernetes://stores/a#b", "nothing but the cluster's name"),
        ("kubernetes://Stores/a", "'Stores' is none"),
        ("kubernetes://user@stores/a", "'user@stores' is none"),
        ("kubernetes://stores:443/a", "'stores:443' is none"),
        ("kubernetes://stores/a?db=1", "unknown option 'db'; allowed with kubernetes: context, kubeconfig"),
        ("kubernetes://stores/a?kubeconfig=/no/such/file", "/no/such/file"),
    ],
    ids=range(12),
)
def test_an_invalid_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        open_directory(url)


def test_without_credentials_it_says_where_they_were_sought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidArgument, match=r"kubeconfig|\.kube"):
        open_directory("kubernetes:///main")
