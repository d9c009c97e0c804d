package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish." placeholder:"SHELL"`
}

func (completionCmd) Help() string {
	return "Prints what makes the shell complete nvop's commands and flags.\n\nExample:\n  nvop completion bash >> ~/.bashrc"
}

func (c completionCmd) Run(a *app) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("where is nvop: %w", err)
	}
	text := fmt.Sprintf("complete -C %q nvop\n", self)
	switch c.Shell {
	case "zsh":
		text = "autoload -U +X bashcompinit && bashcompinit\n" + text
	case "fish":
		text = fmt.Sprintf("complete -c nvop -f -a '(env COMP_LINE=(commandline -cp) %q)'\n", self)
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

// complete answers the shell when it asks for completions (COMP_LINE is set)
// and then ends the program; otherwise it does nothing.
func complete(parser *kong.Kong, getenv func(string) string) {
	if getenv("COMP_LINE") != "" {
		kongplete.Complete(parser, kongplete.WithExitFunc(func(code int) { panic(exitNow{code}) }))
	}
}
