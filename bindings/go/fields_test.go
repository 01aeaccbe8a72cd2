package gsel

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fields_test.go: of each struct of C that the package uses through cgo, every field is named where the struct is: a new
// field of a header does not go unnoticed. Structs that Go mirrors byte by byte are compared in layout_test.go.

// notNamed is the fields that no declaration names which names their struct, and why.
var notNamed = map[string]string{
	"gsel_action":                           "mirrored",
	"gsel_instr":                            "mirrored",
	"gsel_tensor":                           "mirrored",
	"gsel_dlpack_device":                    "mirrored",
	"gsel_unique_id":                        "mirrored: its bytes are copied whole",
	"gsel_call.struct_size":                 "the library makes the struct, of the size that it knows",
	"gsel_data_request.struct_size":         "the library makes the struct, of the size that it knows",
	"gsel_optimizer_call.struct_size":       "the library makes the struct, of the size that it knows",
	"gsel_collective.struct_size":           "set by GSEL_COLLECTIVE_INIT",
	"gsel_collective.send_parts":            "cgo lets no array of Go pointers pass, bindings/README.md",
	"gsel_collective.recv_parts":            "cgo lets no array of Go pointers pass, bindings/README.md",
	"gsel_checkpoint_entry.dtype":           "f32 of all entries",
	"gsel_call.user_data":                   "the callback gets it as an argument, too",
	"gsel_optimizer_options.free_user_data": "the trainer deletes the handle when it is closed",
}

// declarations is the declarations of the package's files, of Go and of C: each ends with a line that begins with }.
func declarations(t *testing.T) (all []string) {
	for _, pattern := range []string{"*.go", "*.c", "*.h"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || file == "nocgo.go" {
				continue
			}
			text, err := os.ReadFile(file)
			must(t, err)
			all = append(all, strings.Split(string(text), "\n}")...)
		}
	}
	return
}

func TestEveryFieldOfCIsNamed(t *testing.T) {
	fields := map[string][]string{}
	for line := range cLayout(t) {
		if of, field, ok := strings.Cut(line, "."); ok {
			fields[of] = append(fields[of], field)
		}
	}
	all := declarations(t)
	used, excused := 0, map[string]bool{}
	for of, names := range fields {
		theirs, isUsed := "", false
		named := regexp.MustCompile(`\b` + of + `\b`)
		for _, declaration := range all {
			if named.MatchString(declaration) {
				theirs += declaration
				isUsed = isUsed || strings.Contains(declaration, "C."+of)
			}
		}
		if !isUsed {
			continue
		}
		used++
		for _, field := range names {
			if strings.HasPrefix(field, "reserved") || regexp.MustCompile(fmt.Sprintf(`(\.|->)%s\b|\b%s:`, field, field)).MatchString(theirs) {
				continue
			}
			switch {
			case notNamed[of] != "":
				excused[of] = true
			case notNamed[of+"."+field] != "":
				excused[of+"."+field] = true
			default:
				t.Errorf("%s.%s is named nowhere that %s is: use it, or say in notNamed why not", of, field, of)
			}
		}
	}
	for what, why := range notNamed {
		if !excused[what] {
			t.Errorf("%s needs no reason why it is not named, but has one: %s", what, why)
		}
	}
	if used < 30 {
		t.Errorf("only %d structs were looked at", used)
	}
}
