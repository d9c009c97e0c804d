package pcie

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWatch: a downshift, errors, and a drive that goes and comes back are
// events; nothing happening is none.
func TestWatch(t *testing.T) {
	m := newMachine(t)
	n := node{512, 256, 512}
	m.plant("pci0000:00", newTree(n, nil, nil, []node{n}))
	dir := "/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/"
	m.file(dir+"current_link_speed", "16.0 GT/s PCIe\n")
	m.file(dir+"current_link_width", "4\n")
	for name, text := range map[string]string{"correctable": "RxErr 5", "nonfatal": "CmpltTO 0", "fatal": "MalfTLP 0"} {
		m.file(dir+"aer_dev_"+name, text+"\n")
	}
	w, err := m.sysfs().Watch(at(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := func(list ...WatchEvent) {
		t.Helper()
		got := w.Look()
		if len(got) != len(list) {
			t.Fatalf("%+v, want %+v", got, list)
		}
		for i, e := range list {
			if got[i].Kind != e.Kind || got[i].Severity != e.Severity || got[i].Text != e.Text || got[i].At != at(1, 0, 0) {
				t.Errorf("%+v, want %+v", got[i], e)
			}
		}
		if again := w.Look(); len(again) != 0 {
			t.Errorf("told twice: %+v", again)
		}
	}
	want()
	m.file(dir+"current_link_speed", "8.0 GT/s PCIe\n")
	m.file(dir+"aer_dev_correctable", "RxErr 7\nBadTLP 1\nTOTAL_ERR_COR 8\n")
	want(WatchEvent{Kind: "link", Severity: Warning, Text: "link 8 GT/s x4, was 16 GT/s x4"},
		WatchEvent{Kind: "aer", Severity: Note, Text: "errors on the link: correctable BadTLP 1, correctable RxErr 2"})
	if s, width := w.Link(); s != Gen3 || width != 4 {
		t.Errorf("%s %s", s, width)
	}
	m.file(dir+"current_link_speed", "16.0 GT/s PCIe\n")
	m.file(dir+"aer_dev_fatal", "MalfTLP 3\nTOTAL_ERR_FATAL 3\n")
	want(WatchEvent{Kind: "link", Severity: Note, Text: "link 16 GT/s x4, was 8 GT/s x4"},
		WatchEvent{Kind: "aer", Severity: Warning, Text: "errors on the link: fatal MalfTLP 3"})
	link := filepath.Join(m.root, "sys/bus/pci/devices/0000:01:00.0")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	want(WatchEvent{Kind: "gone", Severity: Critical, Text: "the function is gone"})
	m.link("/sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:00:03.0/0000:01:00.0")
	want(WatchEvent{Kind: "back", Severity: Note, Text: "the function is back"})
	// Counters that appear are as old as the device: no errors of now.
	m.file("/sys/devices/pci0000:00/0000:00:03.0/aer_dev_correctable", "RxErr 9\n")
	want()
	if _, err := m.sysfs().Watch(at(9, 0, 0)); err == nil {
		t.Error("a function that is not there is watched")
	}
}
