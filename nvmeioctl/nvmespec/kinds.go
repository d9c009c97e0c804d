package nvmespec

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownKind: DecodeKind does not know the kind.
var ErrUnknownKind = errors.New("unknown kind")

// kind is one kind of raw dump.
type kind struct {
	name   string
	decode func([]byte) (any, error)
}

// of turns a typed decoder into one for any value.
func of[T any](decode func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		v, err := decode(b)
		if err != nil {
			return nil, err
		}
		return v, nil
	}
}

// NamespaceList is a list of NSIDs for JSON.
type NamespaceList struct {
	NSIDs []uint32 `json:"nsids"`
}

// ControllerList is a list of controller identifiers for JSON.
type ControllerList struct {
	ControllerIDs []uint16 `json:"controller_ids"`
}

// ErrorLog is an error log for JSON.
type ErrorLog struct {
	Entries []ErrorEntry `json:"entries"`
}

func kinds() []kind {
	list := func(b []byte) (any, error) {
		ids, err := DecodeNamespaceList(b)
		if err != nil {
			return nil, err
		}
		return NamespaceList{NSIDs: append([]uint32{}, ids...)}, nil
	}
	return []kind{
		{"id-ctrl", of(DecodeController)},
		{"id-ctrl-nvm", of(DecodeNVMController)},
		{"id-ns", of(DecodeNamespace)},
		{"id-ns-nvm", of(DecodeNVMNamespace)},
		{"id-ns-independent", of(DecodeIndependentNamespace)},
		{"ns-list", list},
		{"ctrl-list", func(b []byte) (any, error) {
			ids, err := DecodeControllerList(b)
			if err != nil {
				return nil, err
			}
			return ControllerList{ControllerIDs: append([]uint16{}, ids...)}, nil
		}},
		{"ns-descs", of(DecodeNamespaceIDs)},
		{"granularity", of(DecodeGranularityList)},
		{"create-ns", of(DecodeNamespaceCreate)},
		{"smart", of(DecodeSMART)},
		{"error", func(b []byte) (any, error) {
			log, err := DecodeErrorLog(b)
			if err != nil {
				return nil, err
			}
			return ErrorLog{Entries: append([]ErrorEntry{}, log...)}, nil
		}},
		{"fw", of(DecodeFirmwareSlots)},
		{"effects", of(DecodeEffects)},
		{"changed-ns", list},
		{"endurance-group", of(DecodeEnduranceGroup)},
		{"ocp-c0", of(DecodeOCPHealth)},
		{"apst", func(b []byte) (any, error) { return of(func(b []byte) (APST, error) { return DecodeAPST(1, b) })(b) }},
		{"timestamp", of(DecodeTimestamp)},
	}
}

// Kinds are the kinds of raw dumps that DecodeKind reads, as nvme-cli saves them
// with --raw-binary.
func Kinds() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// DecodeKind reads a raw dump of a kind of Kinds into a value that marshals to
// JSON with units in its names.
func DecodeKind(name string, b []byte) (any, error) {
	for _, k := range kinds() {
		if k.name == name {
			return k.decode(b)
		}
	}
	return nil, fmt.Errorf("%w %q: have %s", ErrUnknownKind, name, strings.Join(Kinds(), ", "))
}
