"""What the primary decides by its own clock: each is a few lines that run on one document.

Without an instant in the parameters it is the node's clock that counts; `ctx._now` would be up to 200 ms behind it. What a
script sets on a document that it leaves alone is answered, but not kept.
"""

from __future__ import annotations

_NOW = "def r=ctx._source.redrive;long n=params.now==null?new Date().getTime()*1000L:(long)params.now;"
_UNTIL = "long u=r.until==null?Long.MIN_VALUE:(long)r.until;"

CLAIM = (
    f"{_NOW}{_UNTIL}"
    "if(u>n){ctx.op='none'}else{"
    "long t=(long)r.token+1L;r.token=t>params.token?t:params.token;r.owner=params.owner;"
    "u=n+params.lease;r.until=u;"
    "if(r.claimable_at!=null){long a=(long)r.next_retry_at;r.claimable_at=a>u?a:u}}"
)
"""Lease a letter unless somebody holds it."""

EXTEND = (
    f"{_NOW}{_UNTIL}"
    "if(u<=n||r.token!=params.token||r.generation!=params.generation){ctx.op='none';r.token=0}else{"
    "long e=n+params.by;"
    "if(e<=u){ctx.op='none'}else{r.until=e;"
    "if(r.claimable_at!=null){long a=(long)r.next_retry_at;r.claimable_at=a>e?a:e}}}"
)
"""Move a live lease's end; never nearer. A token of 0 in the answer: it was lost."""

SETTLE = (
    f"{_NOW}{_UNTIL}"
    "if(u<=n||r.token!=params.token){ctx.op='none';r.token=0}"
    "else if(r.version!=params.version){ctx.op='none'}"
    "else{ctx._source.putAll(params.view);r.putAll(params.own)}"
)
"""End a claim whose letter is still at this version. A token of 0 in the answer: the lease was lost."""
