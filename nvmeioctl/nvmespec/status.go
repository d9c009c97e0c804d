package nvmespec

import (
	"encoding/json"
	"fmt"
)

// Status is the status field of a completion without its phase bit, as the
// kernel returns it: SC in bits 7:0, SCT in 10:8, CRD in 12:11, More in 13, DNR
// in 14. 0 is success. Source: NVMe Base Specification 2.x, "Status Field".
type Status uint16

// The bits of Status besides its code.
const (
	StatusMore Status = 0x2000 // the error log has more
	StatusDNR  Status = 0x4000 // do not retry: the same command will fail again
)

// The statuses this project knows, as codes (SCT and SC).
const (
	StatusSuccess               Status = 0x000
	StatusInvalidOpcode         Status = 0x001
	StatusInvalidField          Status = 0x002
	StatusCommandIDConflict     Status = 0x003
	StatusDataTransfer          Status = 0x004
	StatusPowerLoss             Status = 0x005
	StatusInternal              Status = 0x006
	StatusAborted               Status = 0x007
	StatusAbortedSQDeletion     Status = 0x008
	StatusInvalidNamespace      Status = 0x00B
	StatusSequence              Status = 0x00C
	StatusInvalidPRPOffset      Status = 0x013
	StatusAtomicWriteUnit       Status = 0x014
	StatusOperationDenied       Status = 0x015
	StatusSanitizeFailed        Status = 0x01C
	StatusSanitizeInProgress    Status = 0x01D
	StatusWriteProtected        Status = 0x020
	StatusInterrupted           Status = 0x021
	StatusTransientTransport    Status = 0x022
	StatusProhibited            Status = 0x023
	StatusAdminMediaNotReady    Status = 0x024
	StatusLBAOutOfRange         Status = 0x080
	StatusCapacityExceeded      Status = 0x081
	StatusNamespaceNotReady     Status = 0x082
	StatusReservationConflict   Status = 0x083
	StatusFormatInProgress      Status = 0x084
	StatusInvalidQueue          Status = 0x101
	StatusAbortLimit            Status = 0x103
	StatusAsyncEventLimit       Status = 0x105
	StatusInvalidFirmwareSlot   Status = 0x106
	StatusInvalidFirmwareImage  Status = 0x107
	StatusInvalidLogPage        Status = 0x109
	StatusInvalidFormat         Status = 0x10A
	StatusNeedsReset            Status = 0x10B
	StatusNotSaveable           Status = 0x10D
	StatusNotChangeable         Status = 0x10E
	StatusNotPerNamespace       Status = 0x10F
	StatusNeedsSubsystemReset   Status = 0x110
	StatusNeedsControllerReset  Status = 0x111
	StatusActivationTime        Status = 0x112
	StatusActivationProhibited  Status = 0x113
	StatusOverlappingRange      Status = 0x114
	StatusInsufficientCapacity  Status = 0x115
	StatusNSIDUnavailable       Status = 0x116
	StatusAlreadyAttached       Status = 0x118
	StatusPrivate               Status = 0x119
	StatusNotAttached           Status = 0x11A
	StatusThinProvisioning      Status = 0x11B
	StatusInvalidControllerList Status = 0x11C
	StatusSelfTestInProgress    Status = 0x11D
	StatusBootPartitionLocked   Status = 0x11E
	StatusInvalidController     Status = 0x11F
	StatusANAGroupInvalid       Status = 0x124
	StatusANAAttachFailed       Status = 0x125
	StatusNoCapacity            Status = 0x126
	StatusAttachLimit           Status = 0x127
	StatusCommandSetUnsupported Status = 0x129
	StatusCommandSetDisabled    Status = 0x12A
	StatusCommandSetRejected    Status = 0x12B
	StatusInvalidCommandSet     Status = 0x12C
	StatusConflictingAttributes Status = 0x180
	StatusInvalidProtection     Status = 0x181
	StatusReadOnlyRange         Status = 0x182
	StatusCommandSizeLimit      Status = 0x183
	StatusWriteFault            Status = 0x280
	StatusUnrecoveredRead       Status = 0x281
	StatusGuardCheck            Status = 0x282
	StatusApplicationTagCheck   Status = 0x283
	StatusReferenceTagCheck     Status = 0x284
	StatusCompareFailure        Status = 0x285
	StatusAccessDenied          Status = 0x286
	StatusDeallocated           Status = 0x287
	StatusPathInternal          Status = 0x300
	StatusPathPersistentLoss    Status = 0x301
	StatusPathInaccessible      Status = 0x302
	StatusPathTransition        Status = 0x303
	StatusPathController        Status = 0x360
	StatusPathHost              Status = 0x370
	StatusPathHostAborted       Status = 0x371
)

// statusText names the statuses. A switch instead of a table variable: nothing
// can change it.
func statusText(code Status) string {
	switch code {
	case StatusSuccess:
		return "success"
	case StatusInvalidOpcode:
		return "invalid command opcode"
	case StatusInvalidField:
		return "invalid field in command"
	case StatusCommandIDConflict:
		return "command id conflict"
	case StatusDataTransfer:
		return "data transfer error"
	case StatusPowerLoss:
		return "aborted due to power loss notification"
	case StatusInternal:
		return "internal error"
	case StatusAborted:
		return "command abort requested"
	case StatusAbortedSQDeletion:
		return "aborted due to submission queue deletion"
	case StatusInvalidNamespace:
		return "invalid namespace or format"
	case StatusSequence:
		return "command sequence error"
	case StatusInvalidPRPOffset:
		return "invalid PRP offset"
	case StatusAtomicWriteUnit:
		return "atomic write unit exceeded"
	case StatusOperationDenied:
		return "operation denied"
	case StatusSanitizeFailed:
		return "sanitize failed"
	case StatusSanitizeInProgress:
		return "sanitize in progress"
	case StatusWriteProtected:
		return "namespace is write protected"
	case StatusInterrupted:
		return "command interrupted"
	case StatusTransientTransport:
		return "transient transport error"
	case StatusProhibited:
		return "command prohibited by lockdown"
	case StatusAdminMediaNotReady:
		return "admin command media not ready"
	case StatusLBAOutOfRange:
		return "LBA out of range"
	case StatusCapacityExceeded:
		return "capacity exceeded"
	case StatusNamespaceNotReady:
		return "namespace not ready"
	case StatusReservationConflict:
		return "reservation conflict"
	case StatusFormatInProgress:
		return "format in progress"
	}
	return commandStatusText(code)
}

// commandStatusText names the command specific statuses.
func commandStatusText(code Status) string {
	switch code {
	case StatusInvalidQueue:
		return "invalid queue identifier"
	case StatusAbortLimit:
		return "abort command limit exceeded"
	case StatusAsyncEventLimit:
		return "asynchronous event request limit exceeded"
	case StatusInvalidFirmwareSlot:
		return "invalid firmware slot"
	case StatusInvalidFirmwareImage:
		return "invalid firmware image"
	case StatusInvalidLogPage:
		return "invalid log page"
	case StatusInvalidFormat:
		return "invalid format"
	case StatusNeedsReset:
		return "firmware activation needs a conventional reset"
	case StatusNotSaveable:
		return "feature is not saveable"
	case StatusNotChangeable:
		return "feature is not changeable"
	case StatusNotPerNamespace:
		return "feature is not namespace specific"
	case StatusNeedsSubsystemReset:
		return "firmware activation needs a subsystem reset"
	case StatusNeedsControllerReset:
		return "firmware activation needs a controller reset"
	case StatusActivationTime:
		return "firmware activation would exceed the maximum time"
	case StatusActivationProhibited:
		return "firmware activation prohibited"
	case StatusOverlappingRange:
		return "overlapping range"
	case StatusInsufficientCapacity:
		return "namespace insufficient capacity"
	case StatusNSIDUnavailable:
		return "namespace identifier unavailable"
	case StatusAlreadyAttached:
		return "namespace already attached"
	case StatusPrivate:
		return "namespace is private"
	case StatusNotAttached:
		return "namespace not attached"
	case StatusThinProvisioning:
		return "thin provisioning not supported"
	case StatusInvalidControllerList:
		return "controller list invalid"
	case StatusSelfTestInProgress:
		return "device self-test in progress"
	case StatusBootPartitionLocked:
		return "boot partition write prohibited"
	case StatusInvalidController:
		return "invalid controller identifier"
	case StatusANAGroupInvalid:
		return "ANA group identifier invalid"
	case StatusANAAttachFailed:
		return "ANA attach failed"
	case StatusNoCapacity:
		return "insufficient capacity"
	case StatusAttachLimit:
		return "namespace attachment limit exceeded"
	case StatusCommandSetUnsupported:
		return "I/O command set not supported"
	case StatusCommandSetDisabled:
		return "I/O command set not enabled"
	case StatusCommandSetRejected:
		return "I/O command set combination rejected"
	case StatusInvalidCommandSet:
		return "invalid I/O command set"
	}
	return mediaStatusText(code)
}

// mediaStatusText names the statuses of I/O, media and paths.
func mediaStatusText(code Status) string {
	switch code {
	case StatusConflictingAttributes:
		return "conflicting attributes"
	case StatusInvalidProtection:
		return "invalid protection information"
	case StatusReadOnlyRange:
		return "attempted write to read only range"
	case StatusCommandSizeLimit:
		return "command size limit exceeded"
	case StatusWriteFault:
		return "write fault"
	case StatusUnrecoveredRead:
		return "unrecovered read error"
	case StatusGuardCheck:
		return "end-to-end guard check error"
	case StatusApplicationTagCheck:
		return "end-to-end application tag check error"
	case StatusReferenceTagCheck:
		return "end-to-end reference tag check error"
	case StatusCompareFailure:
		return "compare failure"
	case StatusAccessDenied:
		return "access denied"
	case StatusDeallocated:
		return "deallocated or unwritten logical block"
	case StatusPathInternal:
		return "internal path error"
	case StatusPathPersistentLoss:
		return "asymmetric access persistent loss"
	case StatusPathInaccessible:
		return "asymmetric access inaccessible"
	case StatusPathTransition:
		return "asymmetric access transition"
	case StatusPathController:
		return "controller pathing error"
	case StatusPathHost:
		return "host pathing error"
	case StatusPathHostAborted:
		return "command aborted by host"
	}
	return ""
}

// Code is the status without CRD, More and DNR: what statuses are compared by.
func (s Status) Code() Status { return s & 0x7FF }

// SC is the status code, bits 7:0.
func (s Status) SC() uint8 { return uint8(s) }

// SCT is the status code type: 0 generic, 1 command specific, 2 media, 3 path, 7
// vendor specific.
func (s Status) SCT() uint8 { return uint8(s >> 8 & 7) }

// CRD is the command retry delay, 0..3: which of the controller's retry delays
// to wait.
func (s Status) CRD() uint8 { return uint8(s >> 11 & 3) }

// More says that the error log has more about this error.
func (s Status) More() bool { return s&StatusMore != 0 }

// DNR says that the same command will fail again.
func (s Status) DNR() bool { return s&StatusDNR != 0 }

// Name is the status in words; unknown codes say of which type they are.
func (s Status) Name() string {
	if t := statusText(s.Code()); t != "" {
		return t
	}
	types := [...]string{"unknown generic status", "unknown command specific status",
		"unknown media or data integrity status", "unknown path status"}
	switch t := s.SCT(); {
	case int(t) < len(types):
		return types[t]
	case t == 7:
		return "vendor specific status"
	}
	return "status of unknown type"
}

// String is the name and the numbers: "invalid field in command (0x002)".
func (s Status) String() string {
	text := fmt.Sprintf("%s (0x%03x", s.Name(), uint16(s.Code()))
	if s.DNR() {
		text += ", do not retry"
	}
	if s.More() {
		text += ", more in the error log"
	}
	return text + ")"
}

// ResetPending says that a firmware commit succeeded and takes effect at a reset
// of the kind named: "conventional", "subsystem" or "controller".
func (s Status) ResetPending() (kind string, ok bool) {
	switch s.Code() {
	case StatusNeedsReset:
		return "conventional", true
	case StatusNeedsSubsystemReset:
		return "subsystem", true
	case StatusNeedsControllerReset:
		return "controller", true
	}
	return "", false
}

// Err returns nil for success and a StatusError otherwise.
func (s Status) Err() error {
	if s.Code() == 0 {
		return nil
	}
	return StatusError{Status: s}
}

// statusJSON is Status in JSON.
type statusJSON struct {
	Code       uint16 `json:"code"`
	Name       string `json:"name"`
	DoNotRetry bool   `json:"do_not_retry"`
	More       bool   `json:"more"`
	Raw        uint16 `json:"raw"`
}

// MarshalJSON gives code, name and bits.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusJSON{uint16(s.Code()), s.Name(), s.DNR(), s.More(), uint16(s)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Status) UnmarshalJSON(b []byte) error {
	var v statusJSON
	err := json.Unmarshal(b, &v)
	*s = Status(v.Raw)
	return err
}

// StatusError is a status other than success as an error.
type StatusError struct{ Status Status }

func (e StatusError) Error() string { return "controller answered " + e.Status.String() }

// Is compares with another StatusError by code, so that errors.Is works with the
// sentinels of this package whatever DNR, More and CRD say.
func (e StatusError) Is(target error) bool {
	t, ok := target.(StatusError)
	return ok && t.Status.Code() == e.Status.Code()
}

// Retryable says that sending the same command again may help: the controller
// has not forbidden it, and the status is of a transient kind. Statuses that
// describe the command (invalid field, wrong list) are not.
func (e StatusError) Retryable() bool {
	if e.Status.DNR() {
		return false
	}
	switch c := e.Status.Code(); c {
	case StatusInternal, StatusAborted, StatusPowerLoss, StatusAbortedSQDeletion, StatusDataTransfer,
		StatusInterrupted, StatusTransientTransport, StatusAdminMediaNotReady, StatusNamespaceNotReady,
		StatusFormatInProgress, StatusSanitizeInProgress, StatusSelfTestInProgress,
		StatusInvalidNamespace: // some drives answer so shortly after start
		return true
	default:
		return c.SCT() == 3
	}
}

// ExitCode is the process's exit code for this error.
func (e StatusError) ExitCode() int { return 6 }

// Sentinels for errors.Is. They are values of a comparable type and cannot be
// told from an answer with the same code.
var (
	ErrInvalidOpcode         error = StatusError{StatusInvalidOpcode}
	ErrInvalidField          error = StatusError{StatusInvalidField}
	ErrAborted               error = StatusError{StatusAborted}
	ErrInvalidNamespace      error = StatusError{StatusInvalidNamespace}
	ErrSequence              error = StatusError{StatusSequence}
	ErrSanitizeFailed        error = StatusError{StatusSanitizeFailed}
	ErrSanitizeInProgress    error = StatusError{StatusSanitizeInProgress}
	ErrWriteProtected        error = StatusError{StatusWriteProtected}
	ErrFormatInProgress      error = StatusError{StatusFormatInProgress}
	ErrInvalidFirmwareSlot   error = StatusError{StatusInvalidFirmwareSlot}
	ErrInvalidFirmwareImage  error = StatusError{StatusInvalidFirmwareImage}
	ErrInvalidLogPage        error = StatusError{StatusInvalidLogPage}
	ErrInvalidFormat         error = StatusError{StatusInvalidFormat}
	ErrNotSaveable           error = StatusError{StatusNotSaveable}
	ErrNotChangeable         error = StatusError{StatusNotChangeable}
	ErrNotPerNamespace       error = StatusError{StatusNotPerNamespace}
	ErrInsufficientCapacity  error = StatusError{StatusInsufficientCapacity}
	ErrNSIDUnavailable       error = StatusError{StatusNSIDUnavailable}
	ErrAlreadyAttached       error = StatusError{StatusAlreadyAttached}
	ErrPrivate               error = StatusError{StatusPrivate}
	ErrNamespaceNotAttached  error = StatusError{StatusNotAttached}
	ErrThinProvisioning      error = StatusError{StatusThinProvisioning}
	ErrInvalidControllerList error = StatusError{StatusInvalidControllerList}
	ErrSelfTestInProgress    error = StatusError{StatusSelfTestInProgress}
)
