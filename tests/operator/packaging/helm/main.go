// Command helm runs "helm lint" and "helm template" on a chart in a folder, using Helm's own packages:
//
//	helm CHART NAMESPACE KUBE-VERSION < values.json
//
// It prints the rendered files as one JSON object, by name, and the linter's findings to standard error.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: helm CHART NAMESPACE KUBE-VERSION < values.json"))
	}
	folder, namespace := os.Args[1], os.Args[2]
	version, err := common.ParseKubeVersion(os.Args[3])
	check(err)
	values := map[string]any{}
	check(json.NewDecoder(os.Stdin).Decode(&values))

	result := lint.RunAll(folder, values, namespace, lint.WithKubeVersion(version))
	for _, message := range result.Messages {
		fmt.Fprintln(os.Stderr, message)
	}
	if result.HighestSeverity > support.InfoSev {
		os.Exit(1)
	}

	chart, err := loader.Load(folder)
	check(err)
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	release := common.ReleaseOptions{Name: "entrepot", Namespace: namespace, Revision: 1, IsInstall: true}
	renderValues, err := util.ToRenderValues(chart, values, release, capabilities)
	check(err)
	files, err := engine.Render(chart, renderValues)
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(files))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "helm:", err)
	os.Exit(1)
}
