package gsel

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// select_test.go: selection on recorded machines, and what is described without ranks: programs, schedules, timelines,
// tensors of DLPack.

const machines = "../../tests/data/inventory/"

func machine(t *testing.T, name string) *Inventory {
	t.Helper()
	inventory, err := LoadInventory(machines + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inventory.Close() })
	return inventory
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := firstError(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestSelectionSaysWhatAndWhy(t *testing.T) {
	inventory := machine(t, "a100x8.json")
	devices, err := inventory.Devices()
	must(t, err, expect("devices", 9, len(devices)), expect("vendor", "nvidia", devices[0].Vendor))
	s, err := Resolve(background, &ResolveOptions{Inventory: inventory, Env: []EnvVar{{"CUDA_VISIBLE_DEVICES", "3,1"}}, Devices: "count:1"})
	must(t, err)
	must(t, expect("selected", 1, len(s.Devices)), expect("index", 3, s.Devices[0].Index), expect("candidates", 9, len(s.Candidates)))
	env, err := s.Env(-1)
	must(t, err, expect("env", EnvVar{"CUDA_VISIBLE_DEVICES", s.Devices[0].UUID}, env[0]))
	// The same text as the tool, so the same as C.
	command := exec.Command("gsel", "resolve", "--inventory", machines+"a100x8.json", "--devices", "count:1")
	command.Env = append(command.Environ(), "CUDA_VISIBLE_DEVICES=3,1")
	said, err := command.CombinedOutput()
	must(t, err)
	if !strings.Contains(string(said), strings.TrimSpace(s.String())) {
		t.Errorf("gsel resolve says\n%s\nand String\n%s", said, s)
	}
	asJSON, err := json.Marshal(s)
	must(t, err)
	if !strings.Contains(string(asJSON), `"uuid":"`+s.Devices[0].UUID+`"`) || !json.Valid([]byte(s.JSON())) || !json.Valid([]byte(inventory.JSON())) {
		t.Errorf("JSON: %s", asJSON)
	}
	s.Close()
	_, err = s.Env(0)
	must(t, expect("after Close", ErrClosed, err), expect("data stays", 1, len(s.Devices)))

	var e *Error
	_, err = Resolve(background, &ResolveOptions{Inventory: inventory, NoEnv: true, Devices: "index:0,99"})
	if !errors.As(err, &e) || e.Code != ErrOutOfRange || e.Column == 0 || e.File != "devices" {
		t.Errorf("expected the place of 99, got %#v", e)
	}
	_, err = Resolve(background, &ResolveOptions{Inventory: inventory, NoEnv: true, Devices: "count:2"})
	must(t, err)
	if len(Compats()) == 0 || Compats()[0].Name == "" {
		t.Error("no compat systems")
	}
}

func TestInventoryTellsPartitionsAndInterconnects(t *testing.T) {
	mig := machine(t, "mig.json")
	devices, err := mig.Devices()
	must(t, err)
	found := false
	for i, d := range devices {
		partitions, err := mig.Partitions(i)
		must(t, err, expect("partitions", d.PartitionCount, len(partitions)))
		for _, p := range partitions {
			found = found || strings.HasPrefix(p.UUID, "MIG-")
		}
	}
	links, err := machine(t, "linked8.json").Interconnects(0)
	hosts, listed := machine(t, "two_hosts.json").Hosts()
	must(t, err, listed, expect("hosts", 2, len(hosts)))
	if !found || len(links) == 0 || links[0].Kind == "" || mig.String() == "" {
		t.Errorf("partitions found: %v, links: %v", found, links)
	}
	here, err := DetectInventory(background)
	must(t, err)
	here.Close()
}

func TestReservationExcludesOthersUntilClose(t *testing.T) {
	folder := t.TempDir()
	resolve := &ResolveOptions{Inventory: machine(t, "a100x8.json"), NoEnv: true, Devices: "count:8"}
	held, err := Reserve(background, resolve, &ReserveOptions{Folder: folder})
	must(t, err, expect("held", 8, len(held.Selection().Devices)))
	_, err = Reserve(background, resolve, &ReserveOptions{Folder: folder, Wait: 10 * time.Millisecond})
	must(t, refused(ErrBusy, "", err))
	selection := held.Selection()
	held.Close()
	_, err = selection.Env(-1)
	must(t, expect("after Close", ErrClosed, err))
	again, err := Reserve(background, resolve, &ReserveOptions{Folder: folder})
	must(t, err)
	again.Close()
}

func TestConfigIsReadAndChanged(t *testing.T) {
	c, err := ParseConfig("[train]\nbatch = 32\n", "here")
	must(t, err)
	defer c.Close()
	_, err = c.acquire()
	must(t, err, refused(ErrState, "in use", c.Set("train.batch", "8")))
	c.release()
	must(t, c.Set("mesh.data", "auto"), refused(ErrConfig, "train.batch", c.Set("train.batch", "none")))
	batch, known := c.Get("train.batch")
	_, unknown := c.Get("train.nothing")
	must(t, expect("batch", "32", batch), expect("known", true, known), expect("unknown", false, unknown), c.Unset("train.batch"))
	_, err = LoadConfig("/nowhere/gsel.toml")
	must(t, refused(ErrIO, "/nowhere", err))
}

func TestSchedulesAreMadeSimulatedAndDrawn(t *testing.T) {
	s, err := NewSchedule("1f1b", 4, 8, 0)
	must(t, err)
	defer s.Close()
	simulated, err := s.Simulate(nil)
	must(t, err, expect("bubble", 3.0/8, simulated.BubbleOfIdeal), expect("ranks", []int{4, 4, 8, 2}, []int{s.Ranks(), s.Stages(), s.Microbatches(), s.RankOf(2)}))
	actions, err := s.Actions(0)
	must(t, err, expect("first action", Action{WorkForward, 0, 0}, actions[0]))
	again, err := ParseSchedule(s.String(), "again")
	must(t, err, expect("text", s.String(), again.String()))
	again.Close()
	_, err = s.Simulate(&ScheduleTimes{StageTimes: []float64{1}})
	must(t, refused(ErrArg, "12", err))
	timeline, err := NewTimeline()
	must(t, err)
	defer timeline.Close()
	must(t, timeline.Add(simulated.JSON, "1f1b"), refused(ErrParse, "", timeline.Add("{", "broken")))
	svg, err := timeline.Draw(TimelineSVG)
	must(t, err)
	if !strings.HasPrefix(svg, "<svg") && !strings.Contains(svg, "<svg ") {
		t.Errorf("drawn: %.80s", svg)
	}
}

func TestPluginsAreListed(t *testing.T) {
	plugins, err := Plugins()
	must(t, err)
	for _, p := range plugins {
		if p.Name == "ddp" && p.Kind == "strategy" && p.Refusal == "" {
			return
		}
	}
	t.Errorf("no usable ddp in %v", plugins)
}

func TestTensorsGoOutAndComeBackByDLPack(t *testing.T) {
	m, err := Alloc[float32](nil, 6)
	must(t, err)
	copy(m.Slice(), []float32{1, 2, 3, 4, 5, 6})
	released := 0
	managed, err := ToDLPack(NewTensor(m.Pointer(), F32, 2, 3), DLPackDevice{1, 0}, func() { released++; m.Close() })
	must(t, err)
	back, device, err := FromDLPackVersioned(managed)
	must(t, err, expect("shape", []int64{2, 3}, back.Shape()), expect("elements", m.Slice(), back.Float32()), expect("device", DLPackDevice{1, 0}, device))
	DeleteDLPack(managed, true)
	must(t, expect("released", 1, released))
	_, err = ToDLPack(NewTensor(unsafe.Pointer(nil), F32, 2), DLPackDevice{1, 0}, func() { t.Error("released after a refusal") })
	must(t, refused(ErrArg, "", err))
	defer func() {
		if recover() == nil {
			t.Error("a tensor of f32 was taken for f64")
		}
	}()
	wrong := NewTensor(unsafe.Pointer(&device), F32, 1)
	wrong.Float64()
}

func TestPureFunctions(t *testing.T) {
	must(t, expect("shard", Range{4, 7}, ShardRange(10, 3, 1)), expect("version", "0.1.0", Version()), expect("number", 100, VersionNumber()),
		expect("bytes", 2, BF16.Bytes()), expect("axes", 4, AxisCount()), expect("axis", "data", AxisData))
	if u := RandomUniform(1, 2); u < 0 || u >= 1 || u != RandomUniform(1, 2) || RandomNormal(1, 2) == RandomNormal(1, 3) {
		t.Error("random numbers")
	}
	out := make([]float32, 2)
	must(t, ReduceLocal([][]float32{{1, 2}, {3, 4}}, out, Sum, OrderTree), expect("sum", []float32{4, 6}, out))
}
