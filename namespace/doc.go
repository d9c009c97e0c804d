// Package namespace says what a drive should be and how to get there.
//
// [ReadInventory] reads what is; a [Spec] or one of the targets ([OPTarget],
// [CreateTarget], [FormatTarget]) says what should be; the planning functions
// compare the two without touching anything and return a [Plan]: steps with
// their exact commands, what each destroys and how it is undone. [Executors]
// carries the steps out under package txn. Capacity arithmetic is integers
// only: a block count never meets a floating point number.
//
// The package must not confirm, print, open devices or decide about use and
// consent; those belong to the command line.
package namespace
