package predict

import "errors"

// ErrRequest is wrapped by every error about what was asked.
var ErrRequest = errors.New("prediction")

// Predict answers a request.
func Predict(r Request) (Answer, error) {
	return Answer{Schema: Schema, Points: []SizeAnswer{}, Assumptions: []Assumption{}}, nil
}
