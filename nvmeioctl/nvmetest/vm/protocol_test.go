package vm

import (
	"fmt"
	"slices"
	"testing"
)

func TestReport_line(t *testing.T) {
	var r Report
	for _, s := range []string{"nvop-vm: case a b c d", "nvop-vm: case a pass soon", "nvop-vm: case a perhaps 3", "nvop-vm: exit now", "nvop-vm: boot x"} {
		if _, err := r.line(s); err == nil {
			t.Errorf("line %q: no error", s)
		}
	}
	if r.Exited || len(r.Cases) != 0 {
		t.Errorf("damaged lines counted: %+v", r)
	}
	ask, err := r.line("nvop-vm: ask heat  drive\r\n")
	if err != nil || !slices.Equal(ask, []string{"heat", "drive"}) {
		t.Errorf("ask: %q, %v", ask, err)
	}
	if _, err := r.line("sh: not found"); err != nil || len(r.Notes) != 1 {
		t.Errorf("a line of something else: %v, notes %q", err, r.Notes)
	}
}

func FuzzReportLine(f *testing.F) {
	f.Add("nvop-vm: case one pass 12")
	f.Add("nvop-vm: exit 0")
	f.Add("nvop-vm: | text")
	f.Add("nvop-vm: ask a b")
	f.Fuzz(func(t *testing.T, s string) {
		var r Report
		if _, err := r.line(s); err != nil && (r.Exited || len(r.Cases) > 0) {
			t.Fatalf("line %q is an error and counted: %+v", s, r)
		}
	})
}

func ExampleSubsystem_Arguments() {
	for _, arg := range (Subsystem{Serial: "NVOP1", Controllers: 1, Images: []string{"n1.img"}}).Arguments() {
		fmt.Println(arg)
	}
	// Output:
	// -device
	// nvme-subsys,id=NVOP1,nqn=NVOP1
	// -device
	// nvme,id=NVOP1-c0,serial=NVOP1,subsys=NVOP1
	// -drive
	// file=n1.img,if=none,id=NVOP1-n1,format=raw
	// -device
	// nvme-ns,drive=NVOP1-n1,bus=NVOP1-c0,nsid=1,shared=on
}
