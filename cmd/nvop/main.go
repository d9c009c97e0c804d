// Command nvop reconfigures, wears and audits NVMe drives on Linux.
//
// Each cmd_*.go file is one command: it parses, calls the packages that do the
// work, and renders one result. No decision about a drive is taken here except
// consent.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}
