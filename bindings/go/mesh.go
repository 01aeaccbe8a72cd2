package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// mesh.go: the coordinates of ranks on the axes.

// Mesh is plain data: the number of ranks on each axis, by Axis; their product is WorldSize.
type Mesh struct {
	WorldSize int32          `json:"world_size"`
	Size      [maxAxes]int32 `json:"size"`
}

func (m *Mesh) toC() C.gsel_mesh {
	c := C.gsel_mesh{struct_size: C.sizeof_gsel_mesh, world_size: C.int32_t(m.WorldSize), n_axes: maxAxes}
	for i, n := range m.Size {
		c.size[i] = C.int32_t(n)
	}
	return c
}

// ResolveMesh is the mesh that config asks for with worldSize ranks. config nil: all ranks on the data axis.
func ResolveMesh(config *Config, worldSize int) (Mesh, error) {
	n, err := number("the number of ranks", worldSize)
	if err != nil {
		return Mesh{}, err
	}
	var l lent
	defer l.free()
	c := zeroed[C.gsel_mesh](&l)
	c.struct_size = C.sizeof_gsel_mesh
	var p unsafe.Pointer
	if config != nil {
		if p, err = config.acquire(); err != nil {
			return Mesh{}, err
		}
		defer config.release()
	}
	var cerr *C.gsel_error
	status := C.gsel_mesh_resolve((*C.gsel_config)(p), n, c, &cerr)
	m := Mesh{WorldSize: int32(c.world_size)}
	for i := range m.Size {
		m.Size[i] = int32(c.size[i])
	}
	return m, check(status, &cerr)
}

// Coordinate of a rank on an axis; -1 for a rank or axis that does not exist.
func (m *Mesh) Coordinate(rank int, axis Axis) int {
	c := m.toC()
	return int(C.gsel_mesh_coordinate(&c, narrow(rank), C.gsel_axis(axis)))
}

// Rank at these coordinates, by Axis, 0 on axes that are left out; -1 if there is none.
func (m *Mesh) Rank(coordinates ...int32) int {
	c := m.toC()
	return int(C.gsel_mesh_rank(&c, (*C.int32_t)(first(coordinates)), C.int32_t(len(coordinates))))
}

// Split makes the communicator of the ranks whose coordinates differ from this rank's only on these axes. Collective.
func (m *Mesh) Split(ctx context.Context, c *Comm, axes ...Axis) (*Comm, error) {
	mesh := m.toC()
	bits := C.uint32_t(0)
	for _, axis := range axes {
		if axis < 0 || int(axis) >= AxisCount() {
			return nil, failed(ErrArg, "axis %d was asked for, there are 0 to %d", int(axis), AxisCount()-1)
		}
		bits |= 1 << axis
	}
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_mesh_split(p, &mesh, bits, out, err)
	})
}
