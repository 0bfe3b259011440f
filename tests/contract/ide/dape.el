;; dape joins a session that is stopped, goes to a breakpoint of its own, steps, and leaves.
;; From the environment: PORT, PROGRAM, LINE, NEXT, CONFIGURATION, and ANSWER, the file for what it
;; saw.
(require 'dape)
(require 'json)

(defvar answer nil)
(defvar reasons nil)
(defun number-of (name) (string-to-number (getenv name)))

(defun reached (what line)
  "Wait for a stop at LINE, or at any, and note WHAT with its outcome."
  (let ((end (+ (float-time) 20)) (found nil))
    (while (and (not found) (< (float-time) end))
      (accept-process-output nil 0.01)
      (let* ((conn (dape--live-connection 'stopped t))
             (frame (and conn (dape--current-stack-frame conn))))
        (setq found (and frame (or (not line) (equal (plist-get frame :line) line)) frame))))
    (push (cons what (if found t :json-false)) answer)
    found))

(cl-defmethod dape-handle-event :before (_conn (_event (eql stopped)) body)
  (push (plist-get body :reason) reasons))

(find-file (getenv "PROGRAM"))
(goto-char (point-min))
(forward-line (1- (number-of "LINE")))
(dape-breakpoint-toggle)
(load (getenv "CONFIGURATION"))
(dape (dape--config-eval-1
       (plist-put (copy-sequence (alist-get 'relay dape-configs)) 'port (number-of "PORT"))))
(reached 'joined nil)
(dape-continue (dape--live-connection 'stopped))
(reached 'hit (number-of "LINE"))
(dape-next (dape--live-connection 'stopped))
(push (cons 'name (plist-get (reached 'stepped (number-of "NEXT")) :name)) answer)
(dape-disconnect-quit (dape--live-connection 'last))
(let ((end (+ (float-time) 10)))
  (while (and (dape--live-connection 'last t) (< (float-time) end))
    (accept-process-output nil 0.01)))
(push (cons 'left (if (dape--live-connection 'last t) :json-false t)) answer)
(push (cons 'reasons (vconcat (reverse reasons))) answer)
(with-temp-file (getenv "ANSWER") (insert (json-encode answer)))
