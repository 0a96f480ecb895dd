// Package plugin scores nodes by how many bytes of a pod's inputs (annotations entrepot.dev/requires and
// entrepot.dev/partitioned) they hold, according to LocalObjects whose store's Lease is valid. It runs at scheduling
// time, so it sees changes made after admission. It only scores: it never prevents a pod from being scheduled.
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
	// Name of the plugin in scheduler profiles.
	Name = "EntrepotLocality"

	requiresAnnotation    = "entrepot.dev/requires"
	partitionedAnnotation = "entrepot.dev/partitioned"
	localityAnnotation    = "entrepot.dev/locality"

	stateKey = fwk.StateKey(Name)
)

var objectID = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Locality implements PreScore and Score.
type Locality struct {
	objects *objects
}

var (
	_ fwk.PreScorePlugin  = (*Locality)(nil)
	_ fwk.ScorePlugin     = (*Locality)(nil)
	_ fwk.ScoreExtensions = (*Locality)(nil)
)

// bytesByNode is PreScore's result, by node.
type bytesByNode map[string]int64

// Clone returns the map itself, which is never modified.
func (b bytesByNode) Clone() fwk.StateData { return b }

// New creates the plugin. Missing or forbidden resources do not stop the scheduler; every node then scores the same.
func New(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	objects, err := watchObjects(ctx, client, handle.ClientSet())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return &Locality{objects: objects}, nil
}

// Name returns the plugin's name.
func (*Locality) Name() string { return Name }

// PreScore adds up the bytes of the pod's inputs on each node.
func (p *Locality) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	ids := requiredIDs(pod.Annotations)
	if len(ids) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	nodeBytes, err := p.objects.bytes(ids, time.Now())
	if err != nil {
		return fwk.AsStatus(err)
	}
	if len(nodeBytes) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, nodeBytes)
	return nil
}

// Score returns the number of bytes on the node; NormalizeScore scales it.
func (p *Locality) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return data.(bytesByNode)[node.Node().Name], nil
}

// ScoreExtensions returns the plugin itself, which implements NormalizeScore.
func (p *Locality) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives the node with the most bytes the highest score, and the others proportional ones.
func (p *Locality) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	normalize(scores)
	return nil
}

func normalize(scores fwk.NodeScoreList) {
	var top int64
	for _, score := range scores {
		top = max(top, score.Score)
	}
	if top == 0 {
		return
	}
	for i := range scores {
		// In floating point: bytes times 100 can overflow 64 bits.
		scores[i].Score = int64(float64(scores[i].Score) / float64(top) * float64(fwk.MaxNodeScore))
	}
}

// requiredIDs returns the object IDs in a pod's annotations, without duplicates. Malformed IDs are ignored here: the
// webhook reported them at admission.
func requiredIDs(annotations map[string]string) []string {
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
