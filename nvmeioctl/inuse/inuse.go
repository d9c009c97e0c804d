// Package inuse finds out who uses a drive.
//
// The kernel protects nothing: Format through the controller node succeeds
// while the namespace is mounted or exclusively held. So everything that could
// lose data is looked for here, before each destructive command: mounts, swap,
// device mapper and md stacks, ZFS, open files, exports, drivers that own the
// controller, the boot drive, and what is left on the medium.
//
// It only reads. What cannot be read is itself a finding ("unknown"), since
// silence would be taken for "free". The root of the file systems is a value.
package inuse

import (
	"cmp"
	"os"
	"slices"
)

// Class says whether consent can overrule a use.
type Class uint8

const (
	// Never: no flag overrules it.
	Never Class = iota + 1
	// AcceptOnly: it is overruled by accepting its kind by name.
	AcceptOnly
)

func (c Class) String() string {
	if c == AcceptOnly {
		return "accept-only"
	}
	return "never"
}

// MarshalText makes the class readable in JSON.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Kind is what sort of use it is; what `--accept KIND` names.
type Kind string

// The kinds of use.
const (
	KindMounted        Kind = "mounted"         // Never
	KindSwap           Kind = "swap"            // Never
	KindHolder         Kind = "holder"          // Never: device mapper, bcache and others on top
	KindMD             Kind = "md"              // Never: member of a running md array
	KindZFS            Kind = "zfs"             // Never: member of an imported pool
	KindBoot           Kind = "boot"            // Never: backs /, /usr, /boot or the EFI partition
	KindWriter         Kind = "writer"          // Never: a process has it open for writing
	KindExport         Kind = "export"          // Never: exported by the kernel's NVMe target
	KindDriver         Kind = "driver"          // Never: vfio or uio owns the controller
	KindReader         Kind = "reader"          // AcceptOnly: a process has it open for reading
	KindPartitionTable Kind = "partition-table" // AcceptOnly
	KindSignature      Kind = "signature"       // AcceptOnly: file system or member signature left over
	KindUnknown        Kind = "unknown"         // AcceptOnly: something could not be read
)

// Kinds returns the kinds that can be accepted by name.
func Kinds() []Kind { return []Kind{KindReader, KindPartitionTable, KindSignature, KindUnknown} }

// Use is one reason not to touch a drive.
type Use struct {
	Kind  Kind  `json:"kind"`
	Class Class `json:"class"`
	// Subject is the node concerned: "/dev/nvme0n1p1".
	Subject string `json:"subject"`
	// Detail says what was found: "mounted at /srv (ext4)".
	Detail string `json:"detail"`
	// PID and Process are set for openers.
	PID     int    `json:"pid,omitempty"`
	Process string `json:"process,omitempty"`
}

// Target is what is about to be changed.
type Target struct {
	// Disks are the kernel names of the whole block devices concerned
	// ("nvme0n1"); their partitions and what is stacked on them are found.
	Disks []string
	// Chars are the kernel names of the character devices that lead to the
	// same data ("ng0n1") or control it ("nvme0").
	Chars []string
	// PCIAddresses are the controllers' ("0000:01:00.0").
	PCIAddresses []string
}

// Find returns every use of the target on the machine whose file systems are
// below root ("" means "/"). The calling process's own open files do not count.
// The list is sorted: Never first. There is no error: what could not be read is
// a Use of kind "unknown".
func Find(root string, t Target) []Use {
	f := finder{root: root, self: os.Getpid(), devices: map[string]*device{}, seen: map[Use]bool{}}
	f.addDisks(t.Disks)
	f.addChars(t.Chars)
	f.findStacks()
	f.findMounts()
	f.findSwaps()
	f.findOpeners()
	f.findExports()
	f.findDrivers(t.PCIAddresses)
	f.findExclusive()
	f.findSignatures()
	slices.SortFunc(f.uses, func(a, b Use) int {
		return cmp.Or(
			cmp.Compare(a.Class, b.Class), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.PID, b.PID), cmp.Compare(a.Detail, b.Detail),
		)
	})
	return f.uses
}

// Blocking returns the uses that still forbid the change after the given kinds
// were accepted: every Never, and each AcceptOnly whose kind is not named.
func Blocking(uses []Use, accepted ...Kind) []Use {
	var left []Use
	for _, u := range uses {
		if u.Class == AcceptOnly && slices.Contains(accepted, u.Kind) {
			continue
		}
		left = append(left, u)
	}
	return left
}
