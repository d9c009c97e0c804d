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
	// A closed pipe is an error of writing, not the end of a change half done;
	// a terminal that goes away ends things as Ctrl-C does.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}
