package plugin

import (
	"context"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	leases "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	byObject          = "object"
	publisherSelector = "app.kubernetes.io/managed-by=entrepot-publisher"
)

var localObjects = schema.GroupVersionResource{Group: "entrepot.dev", Version: "v1alpha1", Resource: "localobjects"}

// objects is what the cluster's stores have published, kept up to date by watches.
type objects struct {
	index  cache.Indexer
	leases leases.LeaseLister
}

func watchObjects(ctx context.Context, client dynamic.Interface, typed kubernetes.Interface) (*objects, error) {
	dynamicFactory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := dynamicFactory.ForResource(localObjects).Informer()
	if err := informer.AddIndexers(cache.Indexers{byObject: objectOf}); err != nil {
		return nil, err
	}
	if err := informer.SetTransform(slim); err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = publisherSelector }))
	lister := factory.Coordination().V1().Leases().Lister()
	// Not waited for: CRDs that are not installed must not keep the scheduler from starting.
	dynamicFactory.Start(ctx.Done())
	factory.Start(ctx.Done())
	return &objects{index: informer.GetIndexer(), leases: lister}, nil
}

// bytes adds up, node by node, what counts of the objects at a moment. A store that tells of an object twice counts
// once, as do two stores of one node: a pod reads it once.
func (o *objects) bytes(ids []string, now time.Time) (bytesByNode, error) {
	found := bytesByNode{}
	alive := map[string]bool{}
	for _, id := range ids {
		held := bytesByNode{}
		listed, err := o.index.ByIndex(byObject, id)
		if err != nil {
			return nil, err
		}
		for _, each := range listed {
			one := each.(*unstructured.Unstructured)
			if !counts(one) {
				continue
			}
			name, _, _ := unstructured.NestedString(one.Object, "spec", "lease")
			key := one.GetNamespace() + "/" + name
			live, asked := alive[key]
			if !asked {
				lease, err := o.leases.Leases(one.GetNamespace()).Get(name)
				live = err == nil && lives(lease, now)
				alive[key] = live
			}
			if !live {
				continue
			}
			node, _, _ := unstructured.NestedString(one.Object, "spec", "node")
			count, _, _ := unstructured.NestedInt64(one.Object, "spec", "bytes")
			held[node] = max(held[node], count)
		}
		for node, count := range held {
			found[node] += count
		}
	}
	return found, nil
}

// counts says whether a pod may be drawn by an object: as long as its lease lives, all but what is lost.
func counts(one *unstructured.Unstructured) bool {
	if one.GetDeletionTimestamp() != nil {
		return false
	}
	if state, _, _ := unstructured.NestedString(one.Object, "status", "state"); state == "Lost" {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(one.Object, "status", "conditions")
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		if condition["type"] == "Available" && condition["status"] == "False" {
			return false
		}
	}
	return true
}

func lives(lease *coordination.Lease, now time.Time) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	end := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	return now.Before(end)
}

func objectOf(each any) ([]string, error) {
	one, known := each.(*unstructured.Unstructured)
	if !known {
		return nil, nil
	}
	id, _, _ := unstructured.NestedString(one.Object, "spec", "objectID")
	return []string{id}, nil
}

// slim leaves out what nobody here reads and what is most of an object's memory.
func slim(each any) (any, error) {
	if one, known := each.(*unstructured.Unstructured); known {
		one.SetManagedFields(nil)
		unstructured.RemoveNestedField(one.Object, "spec", "names")
	}
	return each, nil
}
