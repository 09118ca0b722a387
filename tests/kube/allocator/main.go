// SPDX-License-Identifier: Apache-2.0

// Gives claims parts of the cards of one node, with the allocator of kube-scheduler. Reads one JSON object on stdin:
// {"slice": ResourceSlice, "class": DeviceClass, "claims": [{"vram": "6Gi", "guaranteed": "0", "count": 1}]}.
// Writes one line for each claim: the devices with what they consume, or an empty list.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Slice  resourceapi.ResourceSlice `json:"slice"`
	Class  resourceapi.DeviceClass   `json:"class"`
	Claims []struct {
		Vram       string `json:"vram"`
		Guaranteed string `json:"guaranteed"`
		Count      int64  `json:"count"`
	} `json:"claims"`
}

type classes struct{ one *resourceapi.DeviceClass }

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.one}, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != c.one.Name {
		return nil, fmt.Errorf("no class %s", name)
	}
	return c.one, nil
}

type given struct {
	Device   string            `json:"device"`
	Consumed map[string]string `json:"consumed"`
}

func claim(vram, guaranteed string, count int64, class string) *resourceapi.ResourceClaim {
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, size := range map[resourceapi.QualifiedName]string{"vram": vram, "guaranteed": guaranteed} {
		if size != "" {
			requests[name] = resource.MustParse(size)
		}
	}
	made := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "1"}}
	made.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
		Capacity: &resourceapi.CapacityRequirements{Requests: requests}}}}
	return made
}

func answer(asked question) error {
	ctx := context.Background()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: *asked.Slice.Spec.NodeName}}
	features := structured.Features{ConsumableCapacity: true}
	cache := cel.NewCache(16, cel.Features{EnableConsumableCapacity: true})
	shared, consumed := sets.New[structured.SharedDeviceID](), structured.NewConsumedCapacityCollection()
	for _, one := range asked.Claims {
		state := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: shared, AggregatedCapacity: consumed}
		allocator, err := structured.NewAllocator(ctx, features, state, classes{&asked.Class},
			[]*resourceapi.ResourceSlice{&asked.Slice}, cache)
		if err != nil {
			return err
		}
		results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{
			claim(one.Vram, one.Guaranteed, max(one.Count, 1), asked.Class.Name)})
		if err != nil {
			return err
		}
		devices := []given{}
		for _, result := range results {
			for _, device := range result.Devices.Results {
				id := structured.MakeDeviceID(device.Driver, device.Pool, device.Device)
				shared.Insert(structured.MakeSharedDeviceID(id, device.ShareID))
				consumed.Insert(structured.NewDeviceConsumedCapacity(id, device.ConsumedCapacity))
				part := given{device.Device, map[string]string{}}
				for name, size := range device.ConsumedCapacity {
					part.Consumed[string(name)] = size.String()
				}
				devices = append(devices, part)
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(devices); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	var asked question
	err := json.NewDecoder(os.Stdin).Decode(&asked)
	if err == nil {
		err = answer(asked)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "allocator:", err)
		os.Exit(1)
	}
}
