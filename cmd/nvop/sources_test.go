package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// forbidden calls by selector, and the packages (or files) where they may be.
func forbidden() map[string]string {
	return map[string]string{
		"time.Now":    "nvmeioctl/clock.go",
		"os.Exit":     "cmd/nvop",
		"fmt.Print":   "cmd/nvop",
		"fmt.Println": "cmd/nvop",
		"fmt.Printf":  "cmd/nvop",
	}
}

// checkCalls reports calls that the architecture forbids, init functions and
// the global random source.
func checkCalls(t *testing.T, pkg, path string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	place := pkg + "/" + filepath.Base(path)
	testKit := strings.HasPrefix(pkg, "nvmeioctl/nvmetest")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				t.Errorf("%s: init function", fset.Position(n.Pos()))
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			call := x.Name + "." + n.Sel.Name
			home, bad := forbidden()[call]
			if bad && !testKit && !strings.HasPrefix(place, home) {
				t.Errorf("%s: %s belongs in %s", fset.Position(n.Pos()), call, home)
			}
			globalRandom := x.Name == "rand" && strings.Contains("IntN Int64 Int64N Uint64 Uint64N Uint32 Uint32N Float64 Perm Shuffle N", n.Sel.Name)
			if globalRandom && importsPath(f, "math/rand/v2") {
				t.Errorf("%s: the global random source cannot be seeded", fset.Position(n.Pos()))
			}
		}
		return true
	})
}

func importsPath(f *ast.File, path string) bool {
	for _, s := range f.Imports {
		if s.Path.Value == `"`+path+`"` && s.Name == nil {
			return true
		}
	}
	return false
}
