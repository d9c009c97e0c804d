package namespace

import (
	"context"
	"fmt"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// name is a namespace's number with the identifiers it has.
func (n Namespace) name() string {
	text := fmt.Sprint(n.NSID)
	if n.NGUID != "" {
		text += ", NGUID " + n.NGUID
	}
	if n.EUI64 != "" {
		text += ", EUI64 " + n.EUI64
	}
	return text
}

// written is what the drive counts as written by hosts, in units and in commands;
// empty where it cannot be read.
func (m management) written(ctx context.Context, s *txn.Scope) string {
	smart, err := admin.SMARTLog(ctx, s.Device, nvmespec.BroadcastNSID)
	if err != nil || allZero(smart) {
		return ""
	}
	return fmt.Sprintf("%v units in %v commands", smart.DataUnitsWritten, smart.HostWrites)
}

// ours refuses to take a namespace for the one that this step created where only
// its shape says so and something speaks against it. What a create leaves is
// attached to no controller until a later step attaches it, and nothing is written
// to what was never attached: a namespace that is attached was in other hands. One
// that is to be deleted has to be without data besides: written is what the drive
// had counted before the create, and if it counts the same still, nothing is lost.
func (m management) ours(ctx context.Context, s *txn.Scope, n Namespace, written string) error {
	deletes := s.Transaction().State == txn.StateRollingBack && s.Direction == txn.Forward || !m.creates(s)
	sign := ""
	switch {
	case m.o.AcceptUnproven:
	case len(n.Controllers) > 0:
		sign = "it is attached to controller " + controllerText(n.Controllers) + ", which this change had not done"
	case deletes:
		if now := m.written(ctx, s); written == "" || now != written {
			sign = fmt.Sprintf("it may hold data: before the create the drive had counted %s as written by hosts, and now %s", orUnread(written), orUnread(now))
		}
	}
	if sign == "" {
		return nil
	}
	what := "going on would take it over"
	if deletes {
		what = "going on deletes it and loses its data for good"
	}
	return &nvmeioctl.RefusedError{
		Check: "identity", Subject: fmt.Sprintf("%s namespace %s", s.Device, n.name()),
		Reason: fmt.Sprintf("it has the size that this change asked for (%s) and appeared since, but it is not proven that this change created it: %s; %s", Bytes(n.SizeBytes()), sign, what),
		Remedy: "look at it; where it is another's: nvop rollback " + s.Transaction().ID + " --abandon, which leaves the drive as it is; where it is to be taken for this change's: --accept unknown",
	}
}

// orUnread is a reading, or that there is none.
func orUnread(text string) string {
	if text == "" {
		return "(could not be read)"
	}
	return text
}
