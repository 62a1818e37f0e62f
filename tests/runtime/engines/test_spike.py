import sys
from meshbook.runtime.session import Session, specs_for
from meshbook.runtime.actor import Actor, endpoint
from meshbook.runtime.mesh import ProcMesh
from meshbook.runtime.shape import Shape
class E(Exception):
    def __init__(self,a,b): super().__init__(a,b)
class C(Actor):
    @endpoint
    def f(self,x): return x+1
    @endpoint
    def boom(self): raise E(1,2)
    @endpoint
    def path(self): import sys; return list(sys.path)
def test_a():
    print(sys.modules['tests'], sys.modules['tests'].__spec__, __name__)
    s=Session()
    r=s.spawn(specs_for({'rank':2}, backend='none', path=sys.path),'local')
    r.wait_ready(20)
    p=ProcMesh(r,Shape.row_major({'rank':2}))
    c=p.spawn('c',C)
    print(c.f.call(1).get())
    try: c.boom.call().get()
    except Exception as e: print(type(e), isinstance(e,E), e)
    print(c.path.call().get().values()[0])
    s.close()
