package main

import (
	"context"

	"nvop/namespace"
)

type formatCmd struct {
	driveArg
	NSID  nsidFlag `name:"nsid" help:"The namespace (default: the one the address names, or the only one)." placeholder:"N" xor:"scope"`
	All   bool     `help:"Format all namespaces of the drive." xor:"scope"`
	LBA   string   `name:"lba" help:"LBA format by data and metadata size, such as 4096 or 4096+8 (default: the present one)." placeholder:"DATA[+META]"`
	Erase string   `enum:"none,user,crypto" default:"none" help:"Secure erase: none, user (user data erase) or crypto (cryptographic erase)." placeholder:"KIND"`
	changeFlags
}

func (formatCmd) Help() string {
	return `Which namespaces a format reaches is the drive's own decision; the plan names them all.

Example:
  nvop format /dev/nvme0 --nsid 1 --lba 4096 --confirm-serial S1234`
}

func (c formatCmd) erase() namespace.SecureErase {
	switch c.Erase {
	case "user":
		return namespace.EraseUser
	case "crypto":
		return namespace.EraseCrypto
	}
	return namespace.EraseNone
}

func (c formatCmd) title() string {
	title := "format"
	if c.LBA != "" {
		title += " --lba " + c.LBA
	}
	if c.Erase != "none" {
		title += " --erase " + c.Erase
	}
	return title
}

func (c formatCmd) Run(ctx context.Context, a *app) error {
	lba, err := lbaSelector(c.LBA)
	if err != nil {
		return err
	}
	return a.change(ctx, c.Drive, c.changeFlags, func(inv namespace.Inventory, named uint32) (namespace.Plan, error) {
		nsid, err := oneNSID(uint32(c.NSID), named)
		if err != nil {
			return namespace.Plan{}, err
		}
		if c.All {
			if named != 0 {
				return namespace.Plan{}, usagef("--all, but the address names namespace %d", named)
			}
			nsid = 0xFFFFFFFF
		}
		return namespace.PlanFormat(inv, namespace.FormatTarget{NSID: nsid, Format: lba, Erase: c.erase(), Title: c.title()}, c.options())
	})
}

// formatProgress tells how far a format is, whenever the drive says something new.
func (a *app) formatProgress() func(percentLeft uint8) {
	told := uint8(0)
	return func(left uint8) {
		if left != told {
			told = left
			a.note("format: %d %% remain", left)
		}
	}
}
