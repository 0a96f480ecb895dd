// Package plugin scores nodes for kube-scheduler by the bytes that they hold of what a pod reads.
//
// A pod says what it reads (annotation entrepot.dev/requires). Where that is, LocalObjects of entrepot.dev/v1alpha1
// say: they count while the Lease of their store has not run out. The plugin decides when a pod is scheduled, which is
// later than any admission, so that what moved meanwhile is known. It only scores: a pod that fits somewhere is
// scheduled, whatever the plugin knows or does not know.
package plugin

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// Name is what a scheduler profile calls the plugin.
	Name = "EntrepotLocality"

	requiresAnnotation    = "entrepot.dev/requires"
	partitionedAnnotation = "entrepot.dev/partitioned"
	localityAnnotation    = "entrepot.dev/locality"

	stateKey = fwk.StateKey(Name)
)

var objectID = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Locality is the plugin.
type Locality struct {
	known *objects
}

var (
	_ fwk.PreScorePlugin  = (*Locality)(nil)
	_ fwk.ScorePlugin     = (*Locality)(nil)
	_ fwk.ScoreExtensions = (*Locality)(nil)
)

// bytesByNode is what PreScore finds out once for all nodes.
type bytesByNode map[string]int64

// Clone returns the map itself: nobody changes it.
func (b bytesByNode) Clone() fwk.StateData { return b }

// New makes the plugin. Resources that are not there, or may not be listed, keep no scheduler from starting: nothing
// is known then, and every node scores the same.
func New(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	known, err := watchObjects(ctx, client, handle.ClientSet())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return &Locality{known: known}, nil
}

// Name is the plugin's.
func (*Locality) Name() string { return Name }

// PreScore adds up where the bytes are that the pod reads.
func (p *Locality) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	ids := wanted(pod.Annotations)
	if len(ids) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	found, err := p.known.bytes(ids, time.Now())
	if err != nil {
		return fwk.AsStatus(err)
	}
	if len(found) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, found)
	return nil
}

// Score is the bytes on the node.
func (p *Locality) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return data.(bytesByNode)[node.Node().Name], nil
}

// ScoreExtensions says that scores are made comparable.
func (p *Locality) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives the node with the most bytes the highest score, and the others one in proportion.
func (p *Locality) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	normalize(scores)
	return nil
}

func normalize(scores fwk.NodeScoreList) {
	var top int64
	for _, one := range scores {
		top = max(top, one.Score)
	}
	if top == 0 {
		return
	}
	for i := range scores {
		// As floating-point numbers: bytes times 100 may be more than 64 bits hold.
		scores[i].Score = int64(float64(scores[i].Score) / float64(top) * float64(fwk.MaxNodeScore))
	}
}

// wanted are the IDs that a pod's annotations name, each once. What is no ID is passed over: the pod is scheduled all
// the same, and whoever admitted it has said what is wrong.
func wanted(annotations map[string]string) []string {
	if strings.TrimSpace(annotations[localityAnnotation]) == "off" {
		return nil
	}
	seen := map[string]bool{}
	var ids []string
	for _, key := range []string{requiresAnnotation, partitionedAnnotation} {
		split := func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }
		for _, part := range strings.FieldsFunc(annotations[key], split) {
			if objectID.MatchString(part) && !seen[part] {
				seen[part] = true
				ids = append(ids, part)
			}
		}
	}
	return ids
}
