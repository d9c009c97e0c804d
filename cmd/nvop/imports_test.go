package main

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listed is what go list tells about one package.
type listed struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
}

// mayImport says which packages of this module a package's product code may
// import: the architecture, as a table. A package that is not listed may not
// exist; "*" means everything.
func mayImport() map[string][]string {
	const (
		dev  = "nvmeioctl"
		spec = "nvmeioctl/nvmespec"
	)
	return map[string][]string{
		// Leaves.
		spec:                       {spec + "/vendor"},
		spec + "/vendor":           {spec},
		"nvmeioctl/inuse":          {},
		"nvmeioctl/sim/ftl":        {},
		"nvmeioctl/pattern":        {},
		"endurance/stats":          {},
		"endurance/workload":       {"nvmeioctl/pattern"},
		"endurance/wear":           {},
		"endurance/predict":        {},
		"pcie":                     {},
		dev:                        {spec},
		"nvmeioctl/admin":          {dev, spec, spec + "/vendor"},
		"nvmeioctl/fault":          {spec},
		"nvmeioctl/layer":          {dev, spec, spec + "/vendor", "nvmeioctl/fault"},
		"nvmeioctl/syncio":         {dev, spec},
		"nvmeioctl/uring":          {dev, spec},
		"nvmeioctl/nvmetcp":        {dev, spec},
		"nvmeioctl/sim":            {dev, spec, spec + "/vendor", "nvmeioctl/pattern", "nvmeioctl/fault", "nvmeioctl/sim/ftl"},
		"nvmeioctl/nvmetest":       {dev, spec, "nvmeioctl/admin", "nvmeioctl/layer"},
		"nvmeioctl/nvmetest/vm":    {},
		"namespace/txn":            {dev},
		"namespace/yamltree":       {},
		"namespace/firmware":       {"namespace/txn", "nvmeioctl/admin", dev, spec},
		"namespace":                {"namespace/txn", "namespace/yamltree", "namespace/firmware", "nvmeioctl/admin", dev, spec, "nvmeioctl/inuse"},
		"namespace/audit":          {"namespace", "namespace/firmware", "nvmeioctl", "nvmeioctl/nvmespec", "pcie"},
		"endurance/run":            {"endurance/stats"},
		"endurance/jobfile":        {"endurance/run", "endurance/workload", "namespace/yamltree"},
		"endurance":                {"endurance/run", "endurance/workload", "endurance/stats", "endurance/wear", "endurance/predict", "nvmeioctl/admin", "nvmeioctl/pattern", dev, spec, spec + "/vendor"},
		"journal":                  {"endurance/run", "endurance/stats", "namespace/txn", "namespace"},
		"cmd/nvop/internal/render": {},
		"cmd/nvop":                 {"*"},
	}
}

// onlyIn says which outside packages belong to which of ours.
func onlyIn() map[string][]string {
	return map[string][]string{
		"database/sql":                      {"journal"},
		"modernc.org/sqlite":                {"journal"},
		"net":                               {"nvmeioctl/nvmetcp", "cmd/nvop"},
		"github.com/alecthomas/kong":        {"cmd/nvop"},
		"github.com/olekukonko/tablewriter": {"cmd/nvop/internal/render"},
	}
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports", "nvop/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// TestImports_followTheArchitecture must run with -count=1: the test cache does
// not see the other packages' sources.
func TestImports_followTheArchitecture(t *testing.T) {
	rules := mayImport()
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "nvop/")
		allowed, ok := rules[name]
		if !ok {
			t.Errorf("package %s is not in the architecture's table", name)
			continue
		}
		for _, imp := range p.Imports {
			own, isOurs := strings.CutPrefix(imp, "nvop/")
			if isOurs && !slices.Contains(allowed, own) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s", name, own)
			}
			if isOurs && (own == "cmd/nvop" || own == "nvmeioctl/nvmetest" || own == "nvmeioctl/nvmetest/vm") {
				t.Errorf("%s: product code imports %s", name, own)
			}
			for outside, homes := range onlyIn() {
				if (imp == outside || strings.HasPrefix(imp, outside+"/") && outside != "net") && !slices.Contains(homes, name) {
					t.Errorf("%s imports %s, which belongs to %v", name, imp, homes)
				}
			}
		}
	}
}

// TestSources_keepTheirPromises holds what can be seen in a single file.
func TestSources_keepTheirPromises(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "nvop/")
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				imp, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				linuxOnly := imp == "unsafe" || imp == "golang.org/x/sys/unix"
				if linuxOnly && !strings.HasSuffix(file, "_linux.go") {
					t.Errorf("%s/%s imports %s; only *_linux.go files may", name, file, imp)
				}
			}
			checkCalls(t, name, path)
		}
	}
}
