package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// select.go: inventories, selections and reservations.

// made is how a call of C that makes an object is written: it fills *out or *err.
func made[P any](f func(out **P, err **C.gsel_error) C.gsel_status) (*P, error) {
	var out *P
	var err *C.gsel_error
	status := f(&out, &err)
	return out, check(status, &err)
}

func newInventory(p *C.gsel_inventory, err error) (*Inventory, error) {
	if err != nil {
		return nil, err
	}
	i := &Inventory{}
	own(i, &i.object, "inventory", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_inventory_free((*C.gsel_inventory)(p)) })
	return i, nil
}

// DetectInventory looks at this machine. It creates no context of a driver. A driver that does not answer is left
// behind when ctx ends.
func DetectInventory(ctx context.Context) (*Inventory, error) {
	if err := before(ctx); err != nil {
		return nil, err
	}
	return await(ctx, func() (*Inventory, error) {
		return newInventory(made(func(out **C.gsel_inventory, err **C.gsel_error) C.gsel_status {
			return C.gsel_inventory_detect(out, err)
		}))
	}, func(i *Inventory) { i.Close() })
}

// LoadInventory reads machines from a JSON file (docs/inventory.md).
func LoadInventory(path string) (*Inventory, error) {
	var l lent
	defer l.free()
	return newInventory(made(func(out **C.gsel_inventory, err **C.gsel_error) C.gsel_status {
		return C.gsel_inventory_load(l.text(path), out, err)
	}))
}

// ParseInventory reads machines from JSON; name stands for the file in messages.
func ParseInventory(json, name string) (*Inventory, error) {
	var l lent
	defer l.free()
	return newInventory(made(func(out **C.gsel_inventory, err **C.gsel_error) C.gsel_status {
		return C.gsel_inventory_parse(l.text(json), l.text(name), out, err)
	}))
}

func deviceFromC(d *C.gsel_device_info) DeviceInfo {
	return DeviceInfo{Index: int(d.index), NUMA: int(d.numa), Vendor: text(d.vendor), Name: text(d.name), UUID: text(d.uuid),
		PCI: text(d.pci), MemoryBytes: uint64(d.memory_bytes), FreeBytes: uint64(d.free_bytes),
		CapabilityMajor: int(d.capability_major), CapabilityMinor: int(d.capability_minor), ComputeUnits: int(d.compute_units),
		ProcessCount: int(d.process_count), Host: text(d.host), Architecture: text(d.architecture),
		PartitionUUID: text(d.partition_uuid), ClockKHz: int64(d.clock_khz), Partition: int(d.partition), Tile: int(d.tile),
		PartitionCount: int(d.partition_count), Tiles: int(d.tiles), ComputeMode: ComputeMode(d.compute_mode),
		Integrated: d.integrated != 0, Accessible: d.accessible != 0, ReservedBy: int(d.reserved_by)}
}

// each fills elements 0 to n-1.
func each[T any](n C.int32_t, get func(i C.int32_t, err **C.gsel_error) (T, C.gsel_status)) ([]T, error) {
	all := make([]T, 0, int(n))
	for i := C.int32_t(0); i < n; i++ {
		var err *C.gsel_error
		t, status := get(i, &err)
		if err := check(status, &err); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// listOf is each on an object that is kept open meanwhile.
func listOf[P, T any](o *object, n func(p *P) C.int32_t, get func(p *P, i C.int32_t, err **C.gsel_error) (T, C.gsel_status)) (all []T, err error) {
	err = o.keepOpen(func(p unsafe.Pointer) (err error) {
		at := (*P)(p)
		all, err = each(n(at), func(i C.int32_t, err **C.gsel_error) (T, C.gsel_status) { return get(at, i, err) })
		return err
	})
	return all, err
}

// Devices is the devices of all hosts, host after host.
func (i *Inventory) Devices() ([]DeviceInfo, error) {
	return listOf(&i.object, func(p *C.gsel_inventory) C.int32_t { return C.gsel_inventory_device_count(p) },
		func(p *C.gsel_inventory, at C.int32_t, err **C.gsel_error) (DeviceInfo, C.gsel_status) {
			info := C.gsel_device_info{struct_size: C.sizeof_gsel_device_info}
			status := C.gsel_inventory_device(p, at, &info, err)
			return deviceFromC(&info), status
		})
}

// Hosts is the names of the hosts.
func (i *Inventory) Hosts() ([]string, error) {
	return listOf(&i.object, func(p *C.gsel_inventory) C.int32_t { return C.gsel_inventory_host_count(p) },
		func(p *C.gsel_inventory, at C.int32_t, err **C.gsel_error) (string, C.gsel_status) {
			return text(C.gsel_inventory_host_name(p, at)), C.GSEL_OK
		})
}

// Partitions is the MIG instances of a device, by its place in Devices.
func (i *Inventory) Partitions(device int) ([]PartitionInfo, error) {
	devices, err := i.Devices()
	if err != nil {
		return nil, err
	}
	if device < 0 || device >= len(devices) {
		return nil, failed(ErrArg, "device %d of %d", device, len(devices))
	}
	return listOf(&i.object, func(*C.gsel_inventory) C.int32_t { return C.int32_t(devices[device].PartitionCount) },
		func(p *C.gsel_inventory, at C.int32_t, err **C.gsel_error) (PartitionInfo, C.gsel_status) {
			info := C.gsel_partition_info{struct_size: C.sizeof_gsel_partition_info}
			status := C.gsel_inventory_partition(p, C.int32_t(device), at, &info, err)
			return PartitionInfo{text(info.uuid), uint64(info.memory_bytes), int(info.gi), int(info.ci)}, status
		})
}

// Interconnects is what connects the devices of a host, by its place in Hosts.
func (i *Inventory) Interconnects(host int) ([]InterconnectInfo, error) {
	hosts, err := i.Hosts()
	if err != nil {
		return nil, err
	}
	if host < 0 || host >= len(hosts) {
		return nil, failed(ErrArg, "host %d of %d", host, len(hosts))
	}
	return listOf(&i.object, func(p *C.gsel_inventory) C.int32_t { return C.gsel_inventory_interconnect_count(p, C.int32_t(host)) },
		func(p *C.gsel_inventory, at C.int32_t, err **C.gsel_error) (InterconnectInfo, C.gsel_status) {
			info := C.gsel_interconnect_info{struct_size: C.sizeof_gsel_interconnect_info}
			status := C.gsel_inventory_interconnect(p, C.int32_t(host), at, &info, err)
			return InterconnectInfo{int(info.a), int(info.b), text(info.kind), float64(info.bytes_per_second), seconds(info.latency_s)}, status
		})
}

// JSON is the inventory in the form that LoadInventory reads; "" after Close.
func (i *Inventory) JSON() (json string) {
	i.look(func(p unsafe.Pointer) { json = text(C.gsel_inventory_json((*C.gsel_inventory)(p))) })
	return
}

// String is the inventory as a table for people; "" after Close.
func (i *Inventory) String() (table string) {
	i.look(func(p unsafe.Pointer) { table = text(C.gsel_inventory_text((*C.gsel_inventory)(p))) })
	return
}

// toC makes the options in C, with an inventory that is kept open until done is called.
func (o *ResolveOptions) toC() (c *C.gsel_resolve_options, done func(), err error) {
	if o == nil {
		o = &ResolveOptions{}
	}
	var inventory unsafe.Pointer
	if o.Inventory != nil {
		if inventory, err = o.Inventory.acquire(); err != nil {
			return nil, nil, err
		}
	}
	l, of := &lent{}, o.Inventory
	done = func() {
		l.free()
		if of != nil {
			of.release()
		}
	}
	c = zeroed[C.gsel_resolve_options](l)
	c.struct_size = C.sizeof_gsel_resolve_options
	c.inventory = (*C.gsel_inventory)(inventory)
	env := make([]C.gsel_env_var, len(o.Env))
	for i, v := range o.Env {
		env[i] = C.gsel_env_var{l.text(v.Name), l.text(v.Value)}
	}
	c.env, c.n_env = list[C.gsel_env_var](l, env), C.size_t(len(env))
	c.devices, c.accelerator, c.compat, c.order = l.given(o.Devices), l.given(o.Accelerator), l.given(o.Compat), l.given(o.Order)
	c.include, c.exclude = l.given(o.Include), l.given(o.Exclude)
	c.hostfile, c.hostfile_text = l.given(o.Hostfile), l.given(o.HostfileText)
	if o.NoEnv || (o.Env != nil && len(o.Env) == 0) {
		c.flags |= C.GSEL_RESOLVE_NO_ENV
	}
	if o.PerRank {
		c.flags |= C.GSEL_RESOLVE_PER_RANK
	}
	return c, done, nil
}

// Resolve selects devices, and says why; see gsel_resolve. options nil: every visible accelerator of one vendor, or the
// CPU. Errors are selection codes with the token and its column. It starts no driver context; a driver that does not
// answer is left behind when ctx ends.
func Resolve(ctx context.Context, options *ResolveOptions) (*Selection, error) {
	if err := before(ctx); err != nil {
		return nil, err
	}
	c, done, err := options.toC()
	if err != nil {
		return nil, err
	}
	return await(ctx, func() (*Selection, error) {
		defer done()
		p, err := made(func(out **C.gsel_selection, err **C.gsel_error) C.gsel_status { return C.gsel_resolve(c, out, err) })
		if err != nil {
			return nil, err
		}
		s := &Selection{}
		own(s, &s.object, "selection", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_selection_free((*C.gsel_selection)(p)) })
		return s, s.fill(p)
	}, func(s *Selection) { s.Close() })
}

func (s *Selection) fill(p *C.gsel_selection) (err error) {
	s.Devices, err = each(C.gsel_selection_device_count(p), func(i C.int32_t, err **C.gsel_error) (DeviceInfo, C.gsel_status) {
		info := C.gsel_device_info{struct_size: C.sizeof_gsel_device_info}
		status := C.gsel_selection_device(p, i, &info, err)
		return deviceFromC(&info), status
	})
	if err != nil {
		return err
	}
	s.Candidates, err = each(C.gsel_selection_candidate_count(p), func(i C.int32_t, err **C.gsel_error) (Candidate, C.gsel_status) {
		c := C.gsel_candidate{struct_size: C.sizeof_gsel_candidate}
		status := C.gsel_selection_candidate(p, i, &c, err)
		return Candidate{int(c.index), int(c.position), text(c.reason), int(c.partition)}, status
	})
	if err != nil {
		return err
	}
	s.Decisions, err = each(C.gsel_selection_decision_count(p), func(i C.int32_t, err **C.gsel_error) (Decision, C.gsel_status) {
		d := C.gsel_decision{struct_size: C.sizeof_gsel_decision}
		status := C.gsel_selection_decision(p, i, &d, err)
		return Decision{text(d.layer), text(d.input), text(d.token), text(d.became), text(d.rule), int(d.column)}, status
	})
	if err != nil {
		return err
	}
	s.Warnings, err = each(C.gsel_selection_warning_count(p), func(i C.int32_t, err **C.gsel_error) (string, C.gsel_status) {
		return text(C.gsel_selection_warning(p, i)), C.GSEL_OK
	})
	s.ProcessCount = int(C.gsel_selection_process_count(p))
	s.text, s.json = text(C.gsel_selection_text(p)), text(C.gsel_selection_json(p))
	return err
}

// Env is the variables that make a child process see this selection: device localRank alone, or all of it for -1. It is
// for the first host selected; HostEnv is for another.
func (s *Selection) Env(localRank int) ([]EnvVar, error) {
	return s.env(func(p *C.gsel_selection, out **C.gsel_env_var, n *C.size_t, err **C.gsel_error) C.gsel_status {
		return C.gsel_selection_env(p, narrow(localRank), out, n, err)
	})
}

// HostEnv is Env for a host by its name.
func (s *Selection) HostEnv(host string, localRank int) ([]EnvVar, error) {
	var l lent
	defer l.free()
	return s.env(func(p *C.gsel_selection, out **C.gsel_env_var, n *C.size_t, err **C.gsel_error) C.gsel_status {
		return C.gsel_selection_host_env(p, l.text(host), narrow(localRank), out, n, err)
	})
}

func (s *Selection) env(f func(p *C.gsel_selection, out **C.gsel_env_var, n *C.size_t, err **C.gsel_error) C.gsel_status) (vars []EnvVar, err error) {
	err = s.keepOpen(func(p unsafe.Pointer) error {
		var out *C.gsel_env_var
		var n C.size_t
		var err *C.gsel_error
		status := f((*C.gsel_selection)(p), &out, &n, &err)
		if err := check(status, &err); err != nil {
			return err
		}
		for _, v := range slice[C.gsel_env_var](out, n) {
			vars = append(vars, EnvVar{text(v.name), text(v.value)})
		}
		return nil
	})
	return
}

// Reserve selects among the devices that nobody uses or holds, and locks them in one step. The operating system releases
// them when the process dies. ErrBusy when too few are free.
func Reserve(ctx context.Context, resolve *ResolveOptions, options *ReserveOptions) (*Reservation, error) {
	if options == nil {
		options = &ReserveOptions{}
	}
	if err := before(ctx); err != nil {
		return nil, err
	}
	c, done, err := resolve.toC()
	if err != nil {
		return nil, err
	}
	wait, folder := options.Wait, options.Folder
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		wait = time.Until(deadline)
	}
	return await(ctx, func() (*Reservation, error) {
		defer done()
		var l lent
		defer l.free()
		o := zeroed[C.gsel_reserve_options](&l)
		o.struct_size = C.sizeof_gsel_reserve_options
		o.folder, o.wait_s = l.given(folder), C.double(wait.Seconds())
		p, err := made(func(out **C.gsel_reservation, err **C.gsel_error) C.gsel_status {
			return C.gsel_reserve(c, o, out, err)
		})
		if err != nil {
			return nil, err
		}
		r := &Reservation{selection: &Selection{}}
		own(r, &r.object, "reservation", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_reservation_free((*C.gsel_reservation)(p)) })
		held := C.gsel_reservation_selection(p)
		own(r.selection, &r.selection.object, "selection of a reservation", unsafe.Pointer(held), func(unsafe.Pointer) {}, &r.object)
		return r, r.selection.fill((*C.gsel_selection)(unsafe.Pointer(held)))
	}, func(r *Reservation) { r.Close() })
}

// Compats is the systems that ResolveOptions.Compat accepts.
func Compats() []Compat {
	all, _ := each(C.gsel_compat_count(), func(i C.int32_t, _ **C.gsel_error) (Compat, C.gsel_status) {
		return Compat{text(C.gsel_compat_name(i)), text(C.gsel_compat_summary(i))}, C.GSEL_OK
	})
	return all
}
