package gsel

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// layout_test.go: what the package writes down by hand, constants and structs that Go shares with C, is what the headers
// say. Everything else is C.name by definition, read by cgo from the header. GSEL_C_LAYOUT names the output of
// tests/bindings/layout.sh.

func cLayout(t *testing.T) map[string]string {
	path := os.Getenv("GSEL_C_LAYOUT")
	if path == "" {
		// A plain `go test` has no C layout to compare with; tests/bindings/go.sh, which ctest runs, always sets it.
		t.Skip("GSEL_C_LAYOUT is not set: tests/bindings/go.sh sets it")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := map[string]string{}
	for s := bufio.NewScanner(file); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		lines[name] = value
	}
	return lines
}

func TestSharedStructsAreLaidOutAsInC(t *testing.T) {
	c := cLayout(t)
	same := func(what string, expected string, got ...uintptr) {
		var numbers []string
		for _, n := range got {
			numbers = append(numbers, strconv.Itoa(int(n)))
		}
		if g := strings.Join(numbers, " "); g != expected {
			t.Errorf("%s: expected %s, got %s", what, expected, g)
		}
	}
	for name, s := range map[string]struct {
		mirror any
		fields string // of C, in the order of Go's
	}{
		"gsel_tensor":        {Tensor{}, "data n_elems dims n_dims dtype"},
		"gsel_shard":         {Shard{}, "dim blocks begin end whole"},
		"gsel_instr":         {Instr{}, "kind layer value microbatch bucket axis peer flags"},
		"gsel_action":        {Action{}, "kind stage microbatch"},
		"gsel_dlpack_device": {DLPackDevice{}, "type id"},
	} {
		mirror, fields := reflect.TypeOf(s.mirror), strings.Fields(s.fields)
		same(name, c[name], mirror.Size())
		same("fields of "+name, strconv.Itoa(len(fields)), uintptr(mirror.NumField()))
		for i, field := range fields {
			f := mirror.Field(i)
			same(name+"."+field, c[name+"."+field], f.Offset, f.Type.Size())
		}
		of := 0
		for line := range c {
			if strings.HasPrefix(line, name+".") {
				of++
			}
		}
		same("fields that C has in "+name, strconv.Itoa(of), uintptr(len(fields)))
	}
	same("gsel_unique_id", c["gsel_unique_id"], reflect.TypeOf(UniqueID{}).Size())
}

// plain is a name without case and underscores: GSEL_ERR_NO_DEVICES and ErrNoDevices are one.
func plain(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "_", "")) }

// constants is the numbers that the package's files write down, by the name that C gives them.
func constants(t *testing.T) map[string]int64 {
	found := map[string]int64{}
	set := token.NewFileSet()
	packages, err := parser.ParseDir(set, ".", func(i fs.FileInfo) bool { return !strings.HasSuffix(i.Name(), "_test.go") && i.Name() != "nocgo.go" }, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(packages["gsel"], func(n ast.Node) bool {
		d, ok := n.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			return true
		}
		for _, spec := range d.Specs {
			v := spec.(*ast.ValueSpec)
			for i, value := range v.Values {
				sign, literal := int64(1), value
				if u, ok := value.(*ast.UnaryExpr); ok && u.Op == token.SUB {
					sign, literal = -1, u.X
				}
				if l, ok := literal.(*ast.BasicLit); ok && l.Kind == token.INT {
					n, err := strconv.ParseInt(l.Value, 0, 64)
					if err != nil {
						t.Fatal(err)
					}
					found[v.Names[i].Name] = sign * n
				}
			}
		}
		return false
	})
	return found
}

// leftOut is what C has and programs in Go do not need, by the beginning of its name.
var leftOut = map[string][]string{
	"for plugins, which are not written in Go": {"ADVICE", "BACKWARDINHALVES", "BACKWARDINONE", "BACKWARDPRODUCES", "BUCKET",
		"COMPRESS", "COPY", "DEVICE", "EVENT", "LOWRANK", "MEMORY", "OPTION", "OPTIMIZER", "PLUGIN", "REDUCESOURCES", "STEPFACTORBYTES", "STREAM", "SUGGESTION", "TRANSPORT"},
	"how C ends a text or counts a list":         {"NUL", "BREACHKINDS", "COLLECTIVEKINDS", "ERRORLISTEND"},
	"of the header; Version tells the library's": {"VERSION"},
	"0 is what a field holds that is not set":    {"SHARDNONE"},
	"shifted where C shifts it; compared below":  {"UNREADSAVED"},
	"a Comm is one goroutine's at a time":        {"COMMTHREADMULTIPLE"},
}

func forOthers(name string) bool {
	for _, beginnings := range leftOut {
		for _, beginning := range beginnings {
			if strings.HasPrefix(name, beginning) {
				return true
			}
		}
	}
	return false
}

// usedOfC is the constants that the package's files read from the header.
func usedOfC(t *testing.T) map[string]bool {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, found := range regexp.MustCompile(`C\.GSEL_([A-Z0-9_]+)`).FindAllSubmatch(text, -1) {
			used[plain(string(found[1]))] = true
		}
	}
	return used
}

func TestConstantsAreThoseOfC(t *testing.T) {
	c := map[string]int64{}
	for name, value := range cLayout(t) {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && strings.HasPrefix(name, "GSEL_") {
			c[plain(strings.TrimPrefix(name, "GSEL_"))] = n
		}
	}
	unexported := map[string]string{"maxAxes": "MAXAXES", "workDone": "WORKDONE", "initFunc": "INITCALLBACK", "firstUser": "OPUSER"}
	// Prefixes that Go needs to tell apart what has types of its own, and what C calls them.
	prefixes := []struct{ inGo, inC string }{{"", ""}, {"Work", ""}, {"Run", ""}, {"Instr", ""}, {"Kind", "COLLECTIVE"}}
	mirrored := map[string]bool{}
	for name, value := range constants(t) {
		known := false
		if of, ok := unexported[name]; ok {
			mirrored[of], known = true, c[of] == value
		}
		for _, p := range prefixes {
			of := plain(p.inC + strings.TrimPrefix(name, p.inGo))
			if n, ok := c[of]; ok && strings.HasPrefix(name, p.inGo) {
				mirrored[of] = true
				known = known || n == value
			}
		}
		if !known {
			t.Errorf("%s = %d is not what C says", name, value)
		}
	}
	if len(mirrored) < 150 {
		t.Errorf("only %d constants were compared", len(mirrored))
	}
	used := usedOfC(t)
	for name := range c {
		if mirrored[name] || used[name] || strings.Contains(name, "(") {
			continue
		}
		if !forOthers(name) {
			t.Errorf("GSEL_%s is neither mirrored, nor used as C.GSEL_%s, nor left out with a reason", name, name)
		}
	}
	for i, name := range map[int]string{0: "UNREADINPUT(0)", 5: "UNREADINPUT(5)", 30: "UNREADINPUT(30)"} {
		if c[name] != int64(UnreadInput(i)) || c[strings.Replace(name, "IN", "OUT", 1)] != int64(UnreadOutput(i)) {
			t.Errorf("%s differs", name)
		}
	}
	if saved := UnreadSaved; c["UNREADSAVED"] != int64(saved) {
		t.Error("GSEL_UNREAD_SAVED differs")
	}
}
