package plugin

import (
	"reflect"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

var (
	now  = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	a, b = strings.Repeat("aa", 20), strings.Repeat("bb", 20)
)

func object(id, node, lease string, count int64, change func(map[string]any)) *unstructured.Unstructured {
	content := map[string]any{
		"metadata": map[string]any{"namespace": "stores", "name": id + "-" + node + "-" + lease},
		"spec":     map[string]any{"objectID": id, "node": node, "lease": lease, "bytes": count},
	}
	if change != nil {
		change(content)
	}
	return &unstructured.Unstructured{Object: content}
}

func newObjects(t *testing.T, items ...*unstructured.Unstructured) *objects {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byObject: objectOf})
	for _, item := range items {
		if err := index.Add(item); err != nil {
			t.Fatal(err)
		}
	}
	leases := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for name, age := range map[string]time.Duration{"live": 10 * time.Second, "old": time.Hour} {
		seconds, renewed := int32(60), metav1.NewMicroTime(now.Add(-age))
		lease := &coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "stores", Name: name},
			Spec:       coordination.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed},
		}
		if err := leases.Add(lease); err != nil {
			t.Fatal(err)
		}
	}
	return &objects{index: index, leases: v1.NewLeaseLister(leases)}
}

func TestLostUnavailableAndExpiredObjectsAreIgnored(t *testing.T) {
	status := func(key string, value any) func(map[string]any) {
		return func(content map[string]any) { content["status"] = map[string]any{key: value} }
	}
	unavailable := []any{map[string]any{"type": "Available", "status": "False"}}
	objects := newObjects(t,
		object(a, "n1", "live", 5, nil),
		object(a, "n2", "old", 7, nil),
		object(a, "n3", "none", 7, nil),
		object(a, "n4", "live", 7, status("state", "Lost")),
		object(a, "n5", "live", 7, status("conditions", unavailable)),
		object(a, "n6", "live", 7, func(content map[string]any) {
			content["metadata"].(map[string]any)["deletionTimestamp"] = "2030-01-01T11:00:00Z"
		}),
		object(b, "n1", "live", 20, nil),
		object(b, "n2", "live", 30, nil),
	)
	nodeBytes, err := objects.bytes([]string{a, b, strings.Repeat("cc", 20)}, now)
	if err != nil {
		t.Fatal(err)
	}
	if want := (bytesByNode{"n1": 25, "n2": 30}); !reflect.DeepEqual(nodeBytes, want) {
		t.Errorf("bytes are %v, want %v", nodeBytes, want)
	}
}

func TestObjectInTwoStoresOfANodeCountsOnce(t *testing.T) {
	second := object(a, "n1", "live", 6, nil)
	second.SetName("another")
	nodeBytes, err := newObjects(t, object(a, "n1", "live", 5, nil), second).bytes([]string{a}, now)
	if err != nil || nodeBytes["n1"] != 6 {
		t.Errorf("bytes are %v (%v), want 6", nodeBytes, err)
	}
}

func TestRequiredIDs(t *testing.T) {
	for _, test := range []struct {
		annotations map[string]string
		want        []string
	}{
		{nil, nil},
		{map[string]string{requiresAnnotation: a + ", " + b + "," + a}, []string{a, b}},
		{map[string]string{requiresAnnotation: a, partitionedAnnotation: b}, []string{a, b}},
		{map[string]string{requiresAnnotation: "none"}, nil},
		{map[string]string{requiresAnnotation: "{{ here }}," + b}, []string{b}},
		{map[string]string{requiresAnnotation: a, localityAnnotation: "off"}, nil},
	} {
		if got := requiredIDs(test.annotations); !reflect.DeepEqual(got, test.want) {
			t.Errorf("IDs of %v are %v, want %v", test.annotations, got, test.want)
		}
	}
}

func TestScoresAreProportional(t *testing.T) {
	scores := fwk.NodeScoreList{{Name: "n1", Score: 1 << 62}, {Name: "n2", Score: 1 << 61}, {Name: "n3"}}
	normalize(scores)
	want := fwk.NodeScoreList{{Name: "n1", Score: 100}, {Name: "n2", Score: 50}, {Name: "n3"}}
	if !reflect.DeepEqual(scores, want) {
		t.Errorf("scores are %v, want %v", scores, want)
	}
	none := fwk.NodeScoreList{{Name: "n1"}}
	normalize(none)
	if none[0].Score != 0 {
		t.Errorf("a node without bytes scores %d, want 0", none[0].Score)
	}
}
