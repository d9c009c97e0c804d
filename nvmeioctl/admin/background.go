package admin

import (
	"context"
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Timeouts of the commands that start something in the background. They answer
// soon, but drives have been seen to take a minute to begin.
const (
	SelfTestTimeout = 2 * time.Minute
	SanitizeTimeout = 10 * time.Minute
)

// SelfTestCommand builds a Device Self-test: nsid 0 tests the controller alone,
// 0xFFFFFFFF all namespaces with it. Stopping one is SelfTestAbort.
func SelfTestCommand(nsid uint32, code nvmespec.SelfTestCode) (*nvmeioctl.Command, error) {
	switch code {
	case nvmespec.SelfTestShort, nvmespec.SelfTestExtended, nvmespec.SelfTestVendor, nvmespec.SelfTestAbort:
	default:
		return nil, fmt.Errorf("self-test: %w: code 0x%x", nvmespec.ErrInvalidData, uint8(code))
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminDeviceSelfTest, NSID: nsid,
		CDW10: nvmespec.SelfTestFields{Code: code}.Dword(), Timeout: SelfTestTimeout}, nil
}

// StartSelfTest starts a self-test, which then runs in the background. One that
// runs already is status 11Dh, an error that Is nvmespec.ErrSelfTestInProgress.
func StartSelfTest(ctx context.Context, dev nvmeioctl.Device, nsid uint32, code nvmespec.SelfTestCode) error {
	cmd, err := SelfTestCommand(nsid, code)
	return run(ctx, dev, "start self-test", nsid, cmd, err)
}

// AbortSelfTest stops the self-test that runs; without one it does nothing.
func AbortSelfTest(ctx context.Context, dev nvmeioctl.Device) error {
	cmd, err := SelfTestCommand(nvmespec.BroadcastNSID, nvmespec.SelfTestAbort)
	return run(ctx, dev, "abort self-test", nvmespec.BroadcastNSID, cmd, err)
}

// SelfTestLog reads what self-test runs and how the last ones ended. A drive may
// announce self-tests (nvmespec.AdminSelfTest) and still refuse this log.
func SelfTestLog(ctx context.Context, dev nvmeioctl.Device) (nvmespec.SelfTestLog, error) {
	return typedLog(ctx, dev, "get self-test log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDSelfTest, LengthBytes: nvmespec.SelfTestLogSize}, nvmespec.DecodeSelfTestLog)
}

// SanitizeCommand builds a Sanitize. It has no namespace: it reaches all data of
// the NVM subsystem.
func SanitizeCommand(f nvmespec.SanitizeFields) (*nvmeioctl.Command, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	cdw10, cdw11 := f.Dwords()
	return &nvmeioctl.Command{Opcode: nvmespec.AdminSanitize, CDW10: cdw10, CDW11: cdw11, Timeout: SanitizeTimeout}, nil
}

// Sanitize starts a sanitize, which then runs in the background, over resets and
// power cycles, and cannot be stopped; or leaves the state of a failed one.
func Sanitize(ctx context.Context, dev nvmeioctl.Device, f nvmespec.SanitizeFields) error {
	cmd, err := SanitizeCommand(f)
	return run(ctx, dev, "sanitize", 0, cmd, err)
}

// SanitizeLog reads how far the sanitize is, or how the last one ended.
func SanitizeLog(ctx context.Context, dev nvmeioctl.Device) (nvmespec.SanitizeLog, error) {
	return typedLog(ctx, dev, "get sanitize log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDSanitize, LengthBytes: nvmespec.SanitizeLogSize}, nvmespec.DecodeSanitizeLog)
}

// SupportedLogs reads which log pages the drive has (nvmespec.LogSupportedPages).
func SupportedLogs(ctx context.Context, dev nvmeioctl.Device) (nvmespec.SupportedLogs, error) {
	return typedLog(ctx, dev, "get supported log pages", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDSupported, LengthBytes: nvmespec.SupportedLogsSize}, nvmespec.DecodeSupportedLogs)
}

// FeatureEffects reads which features the drive has and what setting them may do.
func FeatureEffects(ctx context.Context, dev nvmeioctl.Device) (nvmespec.FeatureEffects, error) {
	return typedLog(ctx, dev, "get feature effects log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDFeatureEffects, LengthBytes: nvmespec.FeatureEffectsSize}, nvmespec.DecodeFeatureEffects)
}

// UUIDList reads the UUIDs that vendor specific commands may be asked by (CNS 17h).
func UUIDList(ctx context.Context, dev nvmeioctl.Device) (nvmespec.UUIDList, error) {
	return identify(ctx, dev, "identify UUID list", 0, nvmespec.IdentifyFields{CNS: nvmespec.CNSUUIDList}, nvmespec.DecodeUUIDList)
}

// NVMSets reads the NVM sets (CNS 04h), the first 31.
func NVMSets(ctx context.Context, dev nvmeioctl.Device) (nvmespec.NVMSetList, error) {
	return identify(ctx, dev, "identify NVM sets", 0, nvmespec.IdentifyFields{CNS: nvmespec.CNSNVMSets}, nvmespec.DecodeNVMSetList)
}

// Domains reads the domains (CNS 18h), the first 31.
func Domains(ctx context.Context, dev nvmeioctl.Device) (nvmespec.DomainList, error) {
	return identify(ctx, dev, "identify domains", 0, nvmespec.IdentifyFields{CNS: nvmespec.CNSDomains}, nvmespec.DecodeDomainList)
}

// EnduranceGroups lists the endurance groups (CNS 19h).
func EnduranceGroups(ctx context.Context, dev nvmeioctl.Device) (nvmespec.EnduranceGroupList, error) {
	return identify(ctx, dev, "identify endurance groups", 0, nvmespec.IdentifyFields{CNS: nvmespec.CNSEnduranceGroups},
		nvmespec.DecodeEnduranceGroupList)
}

// PrimaryController reads the primary controller capabilities (CNS 14h).
func PrimaryController(ctx context.Context, dev nvmeioctl.Device, controller uint16) (nvmespec.PrimaryController, error) {
	return identify(ctx, dev, "identify primary controller", 0,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSPrimaryController, ControllerID: controller}, nvmespec.DecodePrimaryController)
}

// SecondaryControllers reads the secondary controllers (CNS 15h), the first 127.
func SecondaryControllers(ctx context.Context, dev nvmeioctl.Device) (nvmespec.SecondaryControllerList, error) {
	return identify(ctx, dev, "identify secondary controllers", 0,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSSecondaryControllers}, nvmespec.DecodeSecondaryControllerList)
}

// LBAStatus asks which blocks from start on may be unreadable. Controllers
// without nvmespec.AdminGetLBAStatus do not have it.
func LBAStatus(ctx context.Context, dev nvmeioctl.Device, nsid uint32, f nvmespec.LBAStatusFields) (nvmespec.LBAStatusList, error) {
	const op = "get LBA status"
	d, err := f.Dwords()
	if err == nil && f.MaxBytes > logLimit {
		err = fmt.Errorf("%w: %d bytes are too many", nvmespec.ErrInvalidData, f.MaxBytes)
	}
	if err != nil {
		return nvmespec.LBAStatusList{}, opError(op, dev, nsid, err)
	}
	cmd := &nvmeioctl.Command{Opcode: nvmespec.AdminLBAStatus, NSID: nsid, CDW10: d[0], CDW11: d[1], CDW12: d[2], CDW13: d[3],
		Data: make([]byte, f.MaxBytes), Timeout: LogTimeout}
	if _, err := submit(ctx, dev, op, cmd); err != nil {
		return nvmespec.LBAStatusList{}, err
	}
	l, err := nvmespec.DecodeLBAStatusList(cmd.Data)
	return l, opError(op, dev, nsid, err)
}
