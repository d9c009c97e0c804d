// Package fault is the language in which a simulated drive is told to
// misbehave: what happens ([Effect]) and when ([Trigger]), as one line of text.
//
//	after 1000th write power-cut
//	at 10GB spare 4% over 1h
//	at 30s temperature 85C over 10m
//	media-error read nsid 1 lba 4096-8191
//
// It is pure: [Parse] reads a script, [Rule.String] writes it, [Rule.Matches]
// says which commands a rule counts. Whoever has the drive carries the effects
// out: layer.Fault those that happen to one command of any device, the simulated
// drive all of them.
package fault
