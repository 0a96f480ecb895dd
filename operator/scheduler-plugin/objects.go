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

// objects caches what the cluster's stores have published; watches keep it current.
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
	// The caches are not awaited: without the CRDs they never sync, and the scheduler has to start anyway.
	dynamicFactory.Start(ctx.Done())
	factory.Start(ctx.Done())
	return &objects{index: informer.GetIndexer(), leases: lister}, nil
}

// bytes returns how many bytes of the objects each node holds at a given time. An object that is reported several
// times on one node counts once, with the largest size.
func (o *objects) bytes(ids []string, now time.Time) (bytesByNode, error) {
	total := bytesByNode{}
	leaseIsValid := map[string]bool{}
	for _, id := range ids {
		objectBytes := bytesByNode{}
		items, err := o.index.ByIndex(byObject, id)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			object := item.(*unstructured.Unstructured)
			if !attractsPods(object) {
				continue
			}
			name, _, _ := unstructured.NestedString(object.Object, "spec", "lease")
			key := object.GetNamespace() + "/" + name
			valid, cached := leaseIsValid[key]
			if !cached {
				lease, err := o.leases.Leases(object.GetNamespace()).Get(name)
				valid = err == nil && isValid(lease, now)
				leaseIsValid[key] = valid
			}
			if !valid {
				continue
			}
			node, _, _ := unstructured.NestedString(object.Object, "spec", "node")
			count, _, _ := unstructured.NestedInt64(object.Object, "spec", "bytes")
			objectBytes[node] = max(objectBytes[node], count)
		}
		for node, count := range objectBytes {
			total[node] += count
		}
	}
	return total, nil
}

// attractsPods reports whether pods are scheduled near an object, provided that its store's Lease is valid: unless it
// is lost, unavailable or being deleted.
func attractsPods(object *unstructured.Unstructured) bool {
	if object.GetDeletionTimestamp() != nil {
		return false
	}
	if state, _, _ := unstructured.NestedString(object.Object, "status", "state"); state == "Lost" {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Available" && condition["status"] == "False" {
			return false
		}
	}
	return true
}

func isValid(lease *coordination.Lease, now time.Time) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	end := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	return now.Before(end)
}

func objectOf(item any) ([]string, error) {
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	id, _, _ := unstructured.NestedString(object.Object, "spec", "objectID")
	return []string{id}, nil
}

// slim removes the fields that take most of an object's memory and are not read here.
func slim(item any) (any, error) {
	if object, ok := item.(*unstructured.Unstructured); ok {
		object.SetManagedFields(nil)
		unstructured.RemoveNestedField(object.Object, "spec", "names")
	}
	return item, nil
}
