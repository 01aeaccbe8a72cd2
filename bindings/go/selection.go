package gsel

import "time"

// selection.go: inputs and results of selection, as plain data with JSON tags. This file needs no cgo.

// ComputeMode of a device: who may use it.
type ComputeMode int32

// Modes of gsel/select.h.
const (
	ComputeModeDefault          ComputeMode = 0
	ComputeModeExclusiveProcess ComputeMode = 1
	ComputeModeProhibited       ComputeMode = 2
)

// DeviceInfo is facts about one device. Unknown numbers are 0, an unknown NUMA node is -1. Partition and Tile are of a
// selection: the MIG instance and the tile that it chose, or -1.
type DeviceInfo struct {
	Index           int         `json:"index"` // position in bus order on its host
	NUMA            int         `json:"numa"`
	Vendor          string      `json:"vendor"`
	Name            string      `json:"name"`
	UUID            string      `json:"uuid"`
	PCI             string      `json:"pci,omitempty"`
	MemoryBytes     uint64      `json:"memory_bytes"`
	FreeBytes       uint64      `json:"free_bytes"`
	CapabilityMajor int         `json:"capability_major"`
	CapabilityMinor int         `json:"capability_minor"`
	ComputeUnits    int         `json:"compute_units"`
	ProcessCount    int         `json:"process_count"` // processes computing on it now, or -1
	Host            string      `json:"host"`
	Architecture    string      `json:"architecture,omitempty"`
	PartitionUUID   string      `json:"partition_uuid,omitempty"`
	ClockKHz        int64       `json:"clock_khz"`
	Partition       int         `json:"partition"`
	Tile            int         `json:"tile"`
	PartitionCount  int         `json:"partition_count"`
	Tiles           int         `json:"tiles"`
	ComputeMode     ComputeMode `json:"compute_mode"`
	Integrated      bool        `json:"integrated"`
	Accessible      bool        `json:"accessible"`
	ReservedBy      int         `json:"reserved_by,omitempty"` // process that holds a reservation on it
}

// PartitionInfo is a MIG instance of a device. GI and CI are the instances of the GPU and of compute, or -1.
type PartitionInfo struct {
	UUID        string `json:"uuid"`
	MemoryBytes uint64 `json:"memory_bytes"`
	GI          int    `json:"gi"`
	CI          int    `json:"ci"`
}

// InterconnectInfo is what connects two devices of one host, named by Index. 0: not told.
type InterconnectInfo struct {
	A              int           `json:"a"`
	B              int           `json:"b"`
	Kind           string        `json:"kind"`
	BytesPerSecond float64       `json:"bytes_per_second"`
	Latency        time.Duration `json:"latency_ns"`
}

// EnvVar is a variable of the environment.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ResolveOptions says what to select; zero fields take defaults. Devices is a spec such as "count:2" (docs/selection.md).
// Inventory nil: this machine. Env nil: the variables of this process, unless NoEnv.
type ResolveOptions struct {
	Inventory        *Inventory
	Env              []EnvVar
	NoEnv            bool // honour no variables
	PerRank          bool // each device goes to a process of its own
	Devices          string
	Accelerator      string
	Compat           string
	Order            string
	Include, Exclude string
	Hostfile         string // path
	HostfileText     string
}

// ReserveOptions says how to reserve. Folder is that of the locks; "": the default. Wait is how long to wait for devices
// to become free; the deadline of the context shortens it.
type ReserveOptions struct {
	Folder string
	Wait   time.Duration
}

// Candidate is a device or MIG instance with the reason it was kept (Position from 0) or dropped (-1).
type Candidate struct {
	Index     int    `json:"index"`
	Position  int    `json:"position"`
	Reason    string `json:"reason"`
	Partition int    `json:"partition"`
}

// Decision is what one token of a variable or of the request became, and by which rule.
type Decision struct {
	Layer  string `json:"layer"`
	Input  string `json:"input"`
	Token  string `json:"token"`
	Became string `json:"became"`
	Rule   string `json:"rule"`
	Column int    `json:"column"`
}

// Selection is the devices selected, in order, and why. The data stays after Close; Env needs it open.
type Selection struct {
	object
	Devices      []DeviceInfo `json:"devices"`
	Candidates   []Candidate  `json:"candidates"`
	Decisions    []Decision   `json:"decisions"`
	Warnings     []string     `json:"warnings"`
	ProcessCount int          `json:"process_count"` // processes that the compat system would start here, or -1
	text, json   string
}

// String is the selection as text, the same as C's and that of `gsel resolve`.
func (s *Selection) String() string { return s.text }

// JSON is the selection as C writes it.
func (s *Selection) JSON() string { return s.json }

// Close releases the selection.
func (s *Selection) Close() error {
	return s.close()
}

// Reservation is devices that are locked for this process until Close.
type Reservation struct {
	object
	selection *Selection
}

// Selection is the devices that are held; it lives as long as the reservation.
func (r *Reservation) Selection() *Selection { return r.selection }

// Close releases the devices.
func (r *Reservation) Close() error {
	r.selection.close()
	return r.close()
}

// Inventory is what machines have. Calls on it may overlap.
type Inventory struct{ object }

// Close releases the inventory.
func (i *Inventory) Close() error {
	return i.close()
}

// Compat is a system whose reading of devices and variables Resolve can reproduce.
type Compat struct{ Name, Summary string }
